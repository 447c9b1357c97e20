// --max-restarts and what limits restarts beside it.
#include <chrono>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "launcher/cli/option_values.h"

namespace ddprun::launcher {
namespace {

constexpr int kMost = 1000000;

}  // namespace

void ReadRestartOptions(OptionReader& read, LaunchConfig& config) {
  read.Into("max_restarts", config.max_restarts,
            [](const std::string& text) { return ParseNumber(text, 0, kMost); });
  const GivenValue* same = read.Find("max_same_failures");
  const bool is_old = same != nullptr && same->old_name != nullptr;
  read.Into("max_same_failures", config.limits.max_same_failure,
            [is_old](const std::string& text) -> absl::StatusOr<int> {
              // The old name counts the failure that ends the job, as the limit does.
              if (is_old) return ParseNumber(text, 2, kMost);
              const absl::StatusOr<int> allowed = ParseNumber(text, 1, kMost);
              if (!allowed.ok()) return allowed;
              return *allowed + 1;
            });
  const auto count = [](const std::string& text) { return ParseNumber(text, 0, kMost); };
  read.Into("max_node_losses", config.limits.max_node_losses, count);
  read.Into("max_preemptions", config.limits.max_preemptions, count);
  // Nodes compare them as they come to each other, in milliseconds.
  const auto seconds = [](const std::string& text) -> absl::StatusOr<Duration> {
    const absl::StatusOr<Duration> parsed = ParseSeconds(text, false);
    if (!parsed.ok()) return parsed;
    return Duration(std::chrono::ceil<std::chrono::milliseconds>(*parsed));
  };
  read.Into("restart_backoff", config.limits.backoff, seconds);
  read.Into("restart_budget_period", config.limits.budget_period, seconds);
  if (config.max_restarts > 0) return;
  const auto warn = [&](const char* option, const char* why) {
    const GivenValue* given = read.Find(option);
    if (given == nullptr || given->is_default) return;
    config.warnings.push_back(absl::StrCat(config.SourceOf(option), " is not used: with ",
                                           config.SourceOf("max_restarts"), "=0, the default, ",
                                           why));
  };
  for (const char* option : {"max_same_failures", "restart_backoff"}) {
    warn(option, "no failure is followed by a restart");
  }
  if (config.nodes.is_elastic()) return;
  for (const char* option : {"max_node_losses", "max_preemptions", "restart_budget_period"}) {
    warn(option, "the first failure or loss of a node ends the job");
  }
}

}  // namespace ddprun::launcher
