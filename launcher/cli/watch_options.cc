// --hang_timeout and what else a job is watched by.
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

// A port alone is loopback's; nothing is a free one there.
absl::StatusOr<std::optional<Endpoint>> ParsePlace(const std::string& text) {
  if (text.empty()) return std::optional(Endpoint{"127.0.0.1", 0});
  const bool is_port = text.find_first_not_of("0123456789") == std::string::npos;
  const absl::StatusOr<Endpoint> place = ParseBind(is_port ? "127.0.0.1:" + text : text);
  // The rendezvous has a port of its own where none is given; a page has not.
  const bool has_port = text[0] == ':' || ParseEndpoint(text, 1) == ParseEndpoint(text, 2);
  if (place.ok() && (is_port || has_port)) return std::optional(*place);
  return absl::InvalidArgumentError(
      "expected a port (of loopback), HOST:PORT, or :PORT for every address; port 0 is a free one");
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
  read.Into("dashboard", config.dashboard, ParsePlace);
  read.Into("metrics", config.metrics, ParsePlace);
  read.Into("event_file", config.event_file, ParsePath);
  const GivenValue* on_hang = read.Find("on_hang");
  if (on_hang != nullptr && !on_hang->is_default && config.hang_timeout == Duration{0}) {
    read.Refuse(*on_hang, "with --hang_timeout=0 no hang is looked for; expected one above 0");
  }
}

}  // namespace ddprun::launcher
