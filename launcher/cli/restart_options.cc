// --max_restarts and what limits restarts beside it.
#include "absl/strings/str_cat.h"
#include "launcher/cli/option_values.h"

namespace ddprun::launcher {
namespace {

constexpr int kMost = 1000000;

}  // namespace

void ReadRestartOptions(OptionReader& read, LaunchConfig& config) {
  read.Into("max_restarts", config.max_restarts,
            [](const std::string& text) { return ParseNumber(text, 0, kMost); });
  read.Into("max_same_failure", config.limits.max_same_failure,
            [](const std::string& text) { return ParseNumber(text, 2, kMost); });
  for (const char* option : {"max_same_failure"}) {
    if (read.Find(option) == nullptr || config.max_restarts > 0) continue;
    config.warnings.push_back(absl::StrCat(config.SourceOf(option), " is not used: with ",
                                           config.SourceOf("max_restarts"),
                                           "=0, the default, no failure is followed by a restart"));
  }
}

}  // namespace ddprun::launcher
