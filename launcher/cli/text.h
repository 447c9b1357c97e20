// Text for people: quoting values in messages, finding the name that was meant. [pure]
#ifndef DDPRUN_LAUNCHER_CLI_TEXT_H_
#define DDPRUN_LAUNCHER_CLI_TEXT_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/plain_text.h"  // IWYU pragma: export

namespace ddprun::launcher {

// 'value', escaped, cut at 200 bytes with "..." so that a message stays one short line.
std::string Quoted(std::string_view value);

// An option's name with underscores for dashes: both are taken.
std::string Underscored(std::string_view name);

// "--nproc-per-node" of nproc_per_node: options are printed so.
std::string Dashed(std::string_view name);

// The candidate that `name` most likely was meant to be; empty when none is near. Dashes and
// underscores count as equal. The first of several equally near ones wins.
std::string NearestName(std::string_view name, const std::vector<std::string>& candidates);

// "; did you mean X?", with `prefix` in front of the nearest name; empty when none is near.
std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates,
                       const char* prefix = "");

// What Python's string.Template.safe_substitute makes of `pattern`: ${name} and $name become what
// `value_of` gives for the name, $$ one dollar; what is no such macro stays as it is, and what a
// value holds is not looked into.
std::string WithMacros(std::string_view pattern,
                       const std::function<std::optional<std::string>(std::string_view)>& value_of);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_TEXT_H_
