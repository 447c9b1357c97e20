// What a command line means, for the tests of options.
#ifndef DDPRUN_TESTS_LAUNCHER_CLI_PARSE_H_
#define DDPRUN_TESTS_LAUNCHER_CLI_PARSE_H_

#include <doctest/doctest.h>

#include <string>
#include <variant>
#include <vector>

#include "launcher/cli/cli.h"

namespace ddprun::launcher {

using Words = std::vector<std::string>;

// `words`: behind "ddprun"; `variables`: of the environment, "NAME=value". A machine of 6 CPUs.
inline absl::StatusOr<ParseResult> Parse(const Words& words, const Words& variables = {}) {
  std::vector<const char*> argv = {"ddprun"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  return ParseCommandLine(static_cast<int>(argv.size()), argv.data(),
                          {.variables = variables, .machine = {.cpu_count = 6}});
}

inline LaunchConfig Config(const Words& words, const Words& variables = {}) {
  const auto result = Parse(words, variables);
  REQUIRE_MESSAGE(result.ok(), result.status().ToString());
  return std::get<LaunchConfig>(*result);
}

inline std::string ErrorOf(const Words& words, const Words& variables = {}) {
  const auto result = Parse(words, variables);
  return result.ok() ? "accepted" : std::string(result.status().message());
}

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_LAUNCHER_CLI_PARSE_H_
