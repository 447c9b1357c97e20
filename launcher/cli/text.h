// Text for people: quoting values in messages, finding the name that was meant. [pure]
#ifndef DDPRUN_LAUNCHER_CLI_TEXT_H_
#define DDPRUN_LAUNCHER_CLI_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/plain_text.h"  // IWYU pragma: export

namespace ddprun::launcher {

// 'value', escaped, cut at 200 bytes with "..." so that a message stays one short line.
std::string Quoted(std::string_view value);

// An option's name with underscores for dashes: both are taken.
std::string Underscored(std::string_view name);

// The candidate that `name` most likely was meant to be; empty when none is near. Dashes and
// underscores count as equal. The first of several equally near ones wins.
std::string NearestName(std::string_view name, const std::vector<std::string>& candidates);

// Replaces every "${name}" in `text` by `value`.
std::string ReplaceMacro(std::string_view text, std::string_view name, std::string_view value);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_TEXT_H_
