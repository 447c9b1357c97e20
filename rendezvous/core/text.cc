#include "rendezvous/core/text.h"

#include <chrono>

#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {

std::string NodeName(const NodeInfo& node) { return node.host.empty() ? node.id.value : node.host; }

std::string DurationText(Duration duration) {
  if (duration <= Duration::zero()) return "0 s";
  if (duration < std::chrono::seconds(1)) {
    return absl::StrCat(std::chrono::ceil<std::chrono::milliseconds>(duration).count(), " ms");
  }
  return absl::StrCat(std::chrono::ceil<std::chrono::seconds>(duration).count(), " s");
}

std::string CauseText(const FailureReport& report) {
  constexpr size_t kMaxSaid = 200;
  std::string text =
      report.message.empty() ? absl::StrCat("exit code ", report.exit_code) : report.message;
  if (!report.error || report.error->message.empty()) return text;
  std::string said = report.error->message.substr(0, report.error->message.find('\n'));
  if (said.size() > kMaxSaid) said = said.substr(0, kMaxSaid) + "...";
  return absl::StrCat(text, " (", said, ")");
}

std::string Counted(int count, const std::string& noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

std::string NnodesText(int min_nodes, int max_nodes) {
  if (min_nodes == max_nodes) return absl::StrCat("--nnodes=", min_nodes);
  return absl::StrCat("--nnodes=", min_nodes, ":", max_nodes);
}

}  // namespace ddprun::rendezvous
