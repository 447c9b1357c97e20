// --hang-timeout and what else a job is watched by.
#include "absl/status/status.h"
#include "launcher/cli/option_values.h"

namespace ddprun::launcher {
namespace {

absl::StatusOr<OnHang> ParseOnHang(const std::string& text) {
  if (text == "report") return OnHang::kReport;
  if (text == "dump") return OnHang::kDump;
  if (text == "restart") return OnHang::kRestart;
  return absl::InvalidArgumentError("expected report, dump or restart");
}

}  // namespace

absl::StatusOr<std::string> ParsePath(const std::string& text) {
  if (!text.empty()) return text;
  return absl::InvalidArgumentError("expected a path");
}

void ReadWatchOptions(OptionReader& read, LaunchConfig& config) {
  read.Into("hang_timeout", config.hang_timeout,
            [](const std::string& text) { return ParseSeconds(text, true); });
  read.Into("on_hang", config.on_hang, ParseOnHang);
  const auto viewers = [](const std::string& text) {
    return ParseListener(text, Listener::kViewers);
  };
  read.Into("dashboard", config.dashboard, viewers);
  read.Into("metrics", config.metrics, viewers);
  read.Into("event_file", config.event_file, ParsePath);
  const GivenValue* on_hang = read.Find("on_hang");
  if (on_hang != nullptr && !on_hang->is_default && config.hang_timeout == Duration{0}) {
    read.Refuse(*on_hang, "with --hang-timeout=0 no hang is looked for; expected one above 0");
  }
}

}  // namespace ddprun::launcher
