// The shape of what `ddprun --help` and `ddprun COMMAND --help` print.
#ifndef DDPRUN_LAUNCHER_CLI_HELP_H_
#define DDPRUN_LAUNCHER_CLI_HELP_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace ddprun::launcher {

// Of ddprun itself: examples and usage, its options by group, its commands, what holds for all
// options, the exit codes. Of a command: its description and its options. No line is wider than 80
// columns.
class HelpFormat final : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_footer(const CLI::App* app) const override;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_HELP_H_
