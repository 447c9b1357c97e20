#include "rendezvous/core/text.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::rendezvous {

std::string NodeName(const NodeInfo& node) { return node.host.empty() ? node.id.value : node.host; }

std::string DurationText(Duration duration) {
  if (duration <= Duration::zero()) return "0 s";
  if (duration <= std::chrono::milliseconds(999)) {
    return absl::StrCat(std::chrono::ceil<std::chrono::milliseconds>(duration).count(), " ms");
  }
  return absl::StrCat(std::chrono::ceil<std::chrono::seconds>(duration).count(), " s");
}

std::string CauseText(const FailureReport& report) {
  constexpr size_t kMaxSaid = 200;
  std::string text =
      report.message.empty() ? absl::StrCat("exit code ", report.exit_code) : report.message;
  text = EscapeControl(text);
  if (!report.error || report.error->message.empty()) return text;
  const std::string said = report.error->message.substr(0, report.error->message.find('\n'));
  const std::string start = said.substr(0, CharacterStart(said, kMaxSaid));
  return absl::StrCat(text, " (", EscapeControl(start), start == said ? "" : "...", ")");
}

std::string Counted(int count, const std::string& noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace ddprun::rendezvous
