// --max-restarts, what limits restarts beside it, and --scale-up.
#include <chrono>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "launcher/cli/option_values.h"

namespace ddprun::launcher {
namespace {

constexpr int kMost = 1000000;

absl::StatusOr<rendezvous::ScaleUp> ParseScaleUp(const std::string& text) {
  using rendezvous::ScaleUp;
  for (const ScaleUp scale_up : {ScaleUp::kNow, ScaleUp::kGraceful, ScaleUp::kRestart}) {
    if (text == ScaleUpName(scale_up)) return scale_up;
  }
  return absl::InvalidArgumentError("expected now, graceful or restart");
}

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
  read.Into("scale_up", config.scale_up, ParseScaleUp);
  const auto warn = [&](const char* option, const std::string& why) {
    const GivenValue* given = read.Find(option);
    if (given == nullptr || given->is_default) return;
    config.warnings.push_back(absl::StrCat(config.SourceOf(option), " is not used: ", why));
  };
  if (!config.nodes.is_elastic()) {
    warn("scale_up", "the number of nodes is fixed; expected --nnodes=MIN:MAX");
  }
  if (config.max_restarts > 0) return;
  const std::string without =
      absl::StrCat("with ", config.SourceOf("max_restarts"), "=0, the default, ");
  for (const char* option : {"max_same_failures", "restart_backoff"}) {
    warn(option, without + "no failure is followed by a restart");
  }
  if (config.nodes.is_elastic()) return;
  for (const char* option : {"max_node_losses", "max_preemptions", "restart_budget_period"}) {
    warn(option, without + "the first failure or loss of a node ends the job");
  }
}

}  // namespace ddprun::launcher
