// What stands in front of a tee'd line. [pure]
#ifndef DDPRUN_LAUNCHER_LOGS_LINE_PREFIX_H_
#define DDPRUN_LAUNCHER_LOGS_LINE_PREFIX_H_

#include <string>
#include <string_view>

namespace ddprun::launcher {

struct LinePrefixValues {
  std::string role_name;
  int rank = 0;
  int local_rank = 0;
  std::string hostname;
};

// Replaces the macros ${role_name}, ${rank}, ${local_rank} and ${hostname}, also without braces,
// and $$ by one $; what is no such macro stays as it is. So does what a value holds: a role named
// ${rank} is not looked into.
std::string LinePrefix(std::string_view pattern, const LinePrefixValues& values);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_LINE_PREFIX_H_
