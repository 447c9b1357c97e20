// Plain text as Markdown.
#ifndef DDPRUN_TOOLS_REFERENCE_PROGRAM_MARKDOWN_H_
#define DDPRUN_TOOLS_REFERENCE_PROGRAM_MARKDOWN_H_

#include <string>
#include <string_view>
#include <vector>

namespace ddprun::reference {

// "`text`"; "": nothing.
std::string Code(std::string_view text);

// Words that are no English, as --name, a|b, $HOME and <id>, become code. Text between backticks
// stays.
std::string Prose(std::string_view text);

// A row of a table; each cell is Markdown, in which a bar is escaped.
std::string Row(const std::vector<std::string>& cells);
// The first two lines of a table.
std::string Head(const std::vector<std::string>& names);

// Lines of at most 100 columns.
std::string Wrapped(std::string_view text);

}  // namespace ddprun::reference

#endif  // DDPRUN_TOOLS_REFERENCE_PROGRAM_MARKDOWN_H_
