// --health-check, --max-node-failures, and what is done about nodes that are bad by them.
#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "launcher/cli/option_values.h"

namespace ddprun::launcher {
namespace {

constexpr int kMost = 1000000;
constexpr int kDefaultFailureRounds = 10;

// Nodes compare them as they come to each other, in milliseconds.
absl::StatusOr<Duration> ParseWholeMilliseconds(const std::string& text) {
  const absl::StatusOr<Duration> parsed = ParseSeconds(text, false);
  if (!parsed.ok()) return parsed;
  return Duration(std::chrono::ceil<std::chrono::milliseconds>(*parsed));
}

absl::StatusOr<bool> ParseUnknown(const std::string& text) {
  if (text == "admit") return false;
  if (text == "refuse") return true;
  return absl::InvalidArgumentError("expected admit or refuse");
}

struct NodeFailures {
  int most = 0;
  int rounds = kDefaultFailureRounds;
};

absl::StatusOr<NodeFailures> ParseNodeFailures(const std::string& text) {
  const size_t colon = text.find(':');
  const absl::StatusOr<int> most = ParseNumber(text.substr(0, colon), 0, kMost);
  NodeFailures failures;
  absl::StatusOr<int> rounds = failures.rounds;
  if (colon != std::string::npos) rounds = ParseNumber(text.substr(colon + 1), 1, kMost);
  if (!most.ok() || !rounds.ok() || *most >= *rounds) {
    return absl::InvalidArgumentError(
        "expected N or N:ROUNDS, as 1:10, with N from 0 and more ROUNDS than N");
  }
  failures.most = *most;
  failures.rounds = *rounds;
  return failures;
}

}  // namespace

absl::StatusOr<std::string> ParseCommand(const std::string& text) {
  if (text.find_first_not_of(" \t\n") != std::string::npos) return text;
  return absl::InvalidArgumentError("expected a command");
}

void ReadBadNodeOptions(OptionReader& read, LaunchConfig& config) {
  rendezvous::BadNodeRules rules{.check_timeout = std::chrono::seconds(60),
                                 .quarantine = std::chrono::hours(1),
                                 .max_bad_nodes = 3};
  read.Into("health_check", config.health_check, ParseCommand);
  read.Into("health_timeout", rules.check_timeout, ParseWholeMilliseconds);
  read.Into("health_unknown", rules.refuses_unknown, ParseUnknown);
  NodeFailures failures;
  read.Into("max_node_failures", failures, ParseNodeFailures);
  read.Into("quarantine", rules.quarantine, ParseWholeMilliseconds);
  read.Into("max_bad_nodes", rules.max_bad_nodes,
            [](const std::string& text) { return ParseNumber(text, 0, kMost); });
  read.Into("on_bad_node", config.on_bad_node, ParseCommand);
  rules.has_check = !config.health_check.empty();
  if (read.Find("max_node_failures") != nullptr) {
    rules.max_failures = failures.most;
    rules.failure_rounds = failures.rounds;
  }
  const auto warn = [&](const char* option, const char* why) {
    const GivenValue* given = read.Find(option);
    if (given == nullptr || given->is_default) return;
    config.warnings.push_back(absl::StrCat(config.SourceOf(option), " is not used: ", why));
  };
  // What has no use is no difference between nodes.
  if (!rules.has_check) {
    rules.check_timeout = Duration{0};
    rules.refuses_unknown = false;
    for (const char* option : {"health_timeout", "health_unknown"}) {
      warn(option, "there is no --health-check");
    }
  }
  if (rules.has_check || rules.max_failures) {
    config.bad_nodes = rules;
    if (config.nodes.max == 1) warn("on_bad_node", "a job of one node ends with its bad node");
    return;
  }
  for (const char* option : {"quarantine", "max_bad_nodes", "on_bad_node"}) {
    warn(option, "no node is found bad without --health-check or --max-node-failures");
  }
}

}  // namespace ddprun::launcher
