// Completion of ddprun's command line in a shell, written from the table of options. [pure]
#ifndef DDPRUN_LAUNCHER_CLI_COMPLETION_H_
#define DDPRUN_LAUNCHER_CLI_COMPLETION_H_

#include <string>
#include <string_view>

namespace ddprun::launcher {

// A script for bash, zsh, fish or tcsh that completes options (spelt with dashes), the values
// of those that choose among words, files, commands and, behind the program, files; empty: another
// shell. tcsh's knows no commands' own options: its patterns cannot ask for the first word.
std::string CompletionText(std::string_view shell);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_COMPLETION_H_
