// Hosts, and endpoints on them.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/cli/launch_config.h"
#include "launcher/cli/option_values.h"
#include "rendezvous/core/rank_assignment.h"

namespace ddprun::launcher {
namespace {

using absl::InvalidArgumentError;

constexpr size_t kMaxHostLength = 253;  // RFC 1035, without the final dot

std::optional<uint16_t> ParsePort(const std::string& text) {
  const absl::StatusOr<int> port = ParseNumber(text, 0, 65535);
  return port.ok() ? std::optional(static_cast<uint16_t>(*port)) : std::nullopt;
}

bool IsIpv6(const std::string& text) {
  const size_t zone = std::min(text.find('%'), text.size());
  if (text.find(':', zone) != std::string::npos) return false;
  const std::vector<std::string> halves = absl::StrSplit(text.substr(0, zone), "::");
  int count = 0;
  for (const std::string& half : halves) {
    if (half.empty() && halves.size() == 2) continue;
    for (const absl::string_view group : absl::StrSplit(half, ':')) {
      const bool is_good = !group.empty() && group.size() <= 4 &&
                           std::all_of(group.begin(), group.end(), absl::ascii_isxdigit);
      if (!is_good) return false;
      ++count;
    }
  }
  return halves.size() == 1 ? count == 8 : halves.size() == 2 && count < 8;
}

bool IsHost(const std::string& host) {
  const bool has_good_characters = std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
  });
  return !host.empty() && host.size() <= kMaxHostLength && has_good_characters && host[0] != '-';
}

// 0.0.0.0 and ::, in any of their spellings: a listener's, and nobody's to connect to.
bool IsUnspecified(std::string_view host) {
  constexpr std::string_view kMapped = "::ffff:";
  const std::string front = absl::AsciiStrToLower(std::string(host.substr(0, kMapped.size())));
  if (front == kMapped) host.remove_prefix(kMapped.size());
  const bool is_ipv6 = host.find(':') != host.npos;
  const char* const zeros = is_ipv6 ? "0:" : "0.xX";
  return (is_ipv6 || host.starts_with('0')) && host.find_first_not_of(zeros) == host.npos;
}

}  // namespace

absl::StatusOr<Endpoint> ParseEndpoint(const std::string& given, uint16_t default_port) {
  const absl::Status wrong =
      InvalidArgumentError("expected HOST:PORT or [IPV6]:PORT with a port between 0 and 65535");
  const std::string text(absl::StripAsciiWhitespace(given));
  // torchrun takes what follows the last colon for the port.
  const size_t last = std::min(text.rfind(':'), text.size());
  std::string host = text.substr(0, last), port = text.substr(last);  // with its colon
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string::npos) return wrong;
    host = text.substr(1, close - 1);
    port = text.substr(close + 1);
    if (host.find(':') == std::string::npos) return wrong;
  } else if (text.find(':') < last) {
    // An address with several colons that needs no port to be one is an address; where both could
    // be meant, the user has to say.
    const bool has_port = ParsePort(port.substr(1)) && IsIpv6(host);
    if (IsIpv6(text) && has_port) {
      return InvalidArgumentError(
          absl::StrCat("expected brackets, [", text, "] or [", host, "]", port,
                       ": it could be an address or an address with a port"));
    }
    if (!IsIpv6(text) && !has_port) return wrong;
    if (!has_port) {
      host = text;
      port.clear();
    }
  }
  if (host.empty() && !port.empty()) {
    return InvalidArgumentError(
        "the host is missing; expected HOST:PORT, HOST as all nodes reach "
        "it (localhost for a job of one node)");
  }
  if (!IsHost(host)) return wrong;
  if (port.empty() && default_port == 0) return InvalidArgumentError("expected HOST:PORT");
  if (port.empty()) return Endpoint{.host = host, .port = default_port};
  const std::optional<uint16_t> number = ParsePort(port.substr(1));
  if (port[0] != ':' || !number) return wrong;
  return Endpoint{.host = host, .port = *number};
}

absl::StatusOr<Endpoint> ParseListener(const std::string& text, Listener listener) {
  const bool is_coordinator = listener == Listener::kCoordinator;
  const std::optional<uint16_t> alone = ParsePort(text);
  if (!is_coordinator && text.empty()) return Endpoint{.host = "127.0.0.1", .port = 0};
  if (!is_coordinator && alone) return Endpoint{.host = "127.0.0.1", .port = *alone};
  const absl::Status wrong = InvalidArgumentError(absl::StrCat(
      "expected ", is_coordinator ? "" : "PORT (on loopback), ", "HOST:PORT, or :",
      alone ? text : "PORT", " (on all interfaces), with a port from 0, a free one, to 65535"));
  if (alone) return wrong;
  if (text.starts_with(':')) {
    const std::optional<uint16_t> port = ParsePort(text.substr(1));
    return port ? absl::StatusOr<Endpoint>(Endpoint{.host = "", .port = *port}) : wrong;
  }
  absl::StatusOr<Endpoint> place =
      ParseEndpoint(text, is_coordinator ? kDefaultRendezvousPort : uint16_t{0});
  return place.ok() ? place : wrong;
}

absl::StatusOr<std::string> ParseHost(const std::string& text) {
  const bool has_brackets = text.size() > 2 && text.front() == '[' && text.back() == ']';
  std::string host = has_brackets ? text.substr(1, text.size() - 2) : text;
  if (host.empty() || IsHost(host)) return host;
  return InvalidArgumentError("expected a host name or an IP address");
}

bool NamesThisMachine(const std::string& host, const std::vector<std::string>& own) {
  const auto canonical = [](const std::string& name) {
    return absl::AsciiStrToLower(absl::StripSuffix(name, "."));
  };
  const auto is_short_of = [](const std::string& name, const std::string& full) {
    return !absl::StrContains(name, '.') && full.starts_with(name + ".");
  };
  const std::string asked = canonical(host);
  return rendezvous::IsLoopback(asked) || std::ranges::any_of(own, [&](const std::string& name) {
           const std::string ours = canonical(name);
           return asked == ours || is_short_of(asked, ours) || is_short_of(ours, asked);
         });
}

std::string WhyUnreachable(const std::string& host) {
  if (IsUnspecified(host)) {
    return "that is no machine's address; expected the host where the nodes meet";
  }
  // fe80::/10, RFC 4291.
  const bool is_link_local = host.size() > 4 && host[4] == ':' &&
                             absl::StartsWithIgnoreCase(host, "fe") &&
                             absl::StrContains("89abAB", host[2]);
  if (!is_link_local || absl::StrContains(host, '%')) return "";
  return absl::StrCat(
      "a link-local address is valid on one interface only; expected its name, as in [", host,
      "%eth0]");
}

}  // namespace ddprun::launcher
