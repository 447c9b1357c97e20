#include "launcher/cli/option_values.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxNameLength = 200;  // run id and role: they become parts of file names

using absl::InvalidArgumentError;

constexpr size_t kMaxHostLength = 253;  // RFC 1035, without the final dot
constexpr int kMaxSeconds = 365 * 24 * 3600;

bool IsDigits(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

std::optional<int> DigitsUpTo(const std::string& text, int max) {
  int value = 0;
  if (!IsDigits(text)) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > max) return std::nullopt;
  return value;
}

std::optional<Streams> OneStreamChoice(const std::string& text) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3') return std::nullopt;
  const int bits = text[0] - '0';
  return Streams{.out = (bits & 1) != 0, .err = (bits & 2) != 0};
}

// Of an IPv6 address: one to four hexadecimal digits between colons, "" for none.
std::optional<size_t> CountIpv6Groups(const std::string& text) {
  if (text.empty()) return 0;
  const std::vector<std::string> groups = absl::StrSplit(text, ':');
  for (const std::string& group : groups) {
    const bool is_good = !group.empty() && group.size() <= 4 &&
                         std::all_of(group.begin(), group.end(), absl::ascii_isxdigit);
    if (!is_good) return std::nullopt;
  }
  return groups.size();
}

bool IsIpv6(const std::string& text) {
  const size_t zone = std::min(text.find('%'), text.size());
  if (text.find(':', zone) != std::string::npos) return false;
  const std::string address = text.substr(0, zone);
  const size_t gap = address.find("::");
  if (gap == std::string::npos) return CountIpv6Groups(address) == 8;
  const std::optional<size_t> before = CountIpv6Groups(address.substr(0, gap));
  const std::optional<size_t> after = CountIpv6Groups(address.substr(gap + 2));
  return before && after && *before + *after < 8;
}

// A text cut where its port begins; the port keeps its colon.
struct HostAndPort {
  std::string host;
  std::string port;
};

// torchrun takes what follows the last colon for the port. An address with several colons that
// needs no port to be one is an address; where both could be meant, the user has to say.
absl::StatusOr<HostAndPort> SplitPort(const std::string& text) {
  if (!text.empty() && text[0] == '[') {
    const size_t close = text.find(']');
    const std::string host = close == std::string::npos ? "" : text.substr(1, close - 1);
    if (host.find(':') == std::string::npos) return InvalidArgumentError("");
    return HostAndPort{host, text.substr(close + 1)};
  }
  const size_t last = text.rfind(':');
  if (last == std::string::npos) return HostAndPort{text, ""};
  HostAndPort cut{text.substr(0, last), text.substr(last)};
  if (text.find(':') == last) return cut;
  const bool is_port = DigitsUpTo(cut.port.substr(1), 65535).has_value();
  const bool has_port = is_port && IsIpv6(cut.host);
  if (IsIpv6(text) && has_port) {
    return InvalidArgumentError(absl::StrCat("expected brackets, [", text, "] or [", cut.host, "]",
                                             cut.port,
                                             ": it could be an address or an address "
                                             "with a port"));
  }
  if (IsIpv6(text)) return HostAndPort{text, ""};
  if (has_port) return cut;
  return InvalidArgumentError("");
}

absl::StatusOr<uint16_t> ParsePort(const std::string& text) {
  const std::optional<int> port = DigitsUpTo(text, 65535);
  if (!port) return InvalidArgumentError("expected a port between 0 and 65535");
  return static_cast<uint16_t>(*port);
}

}  // namespace

absl::StatusOr<int> ParseNumber(const std::string& text, int min, int max) {
  const std::optional<int> value = DigitsUpTo(text, max);
  if (!value || *value < min) {
    return InvalidArgumentError(absl::StrCat("expected a number from ", min, " to ", max));
  }
  return *value;
}

absl::StatusOr<NodeRange> ParseNodeRange(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  std::optional<int> min, max;
  if (parts.size() <= 2) {
    min = DigitsUpTo(parts.front(), kMaxNodes);
    max = DigitsUpTo(parts.back(), kMaxNodes);
  }
  if (!min || !max || *min < 1 || *min > *max) {
    return InvalidArgumentError(
        absl::StrCat("expected N or MIN:MAX with 1 <= MIN <= MAX <= ", kMaxNodes));
  }
  return NodeRange{.min = *min, .max = *max};
}

absl::StatusOr<int> ParseWorkersPerNode(const std::string& text, int cpu_count) {
  if (text == "cpu") return std::min(std::max(cpu_count, 1), kMaxWorkersPerNode);
  const std::optional<int> count = DigitsUpTo(text, kMaxWorkersPerNode);
  if (!count || *count < 1) {
    return InvalidArgumentError(absl::StrCat(text == "xpu" ? "Intel's GPUs are not counted; " : "",
                                             "expected a number from 1 to ", kMaxWorkersPerNode,
                                             ", gpu, auto, or cpu (", cpu_count, " here)"));
  }
  return *count;
}

const char* NumaBindingName(NumaBinding binding) {
  switch (binding) {
    case NumaBinding::kNode:
      return "node";
    case NumaBinding::kSocket:
      return "socket";
    case NumaBinding::kExclusive:
      return "exclusive";
    case NumaBinding::kCoreComplex:
      return "core-complex";
  }
  return "unknown";
}

absl::StatusOr<NumaBinding> ParseNumaBinding(const std::string& text) {
  for (const NumaBinding binding : {NumaBinding::kNode, NumaBinding::kSocket,
                                    NumaBinding::kExclusive, NumaBinding::kCoreComplex}) {
    if (text == NumaBindingName(binding)) return binding;
  }
  return InvalidArgumentError("expected node, socket, exclusive or core-complex");
}

absl::StatusOr<Duration> ParseSeconds(const std::string& text, bool zero_allowed) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('.', 1));
  const bool has_fraction = text.find('.') != std::string::npos;
  const std::optional<int> whole = DigitsUpTo(parts.first, kMaxSeconds);
  const bool valid = whole && (!has_fraction || IsDigits(parts.second));
  int64_t nanoseconds = 0;
  if (valid) {
    std::string fraction = parts.second.substr(0, 9);
    fraction.resize(9, '0');
    nanoseconds = int64_t{*whole} * 1000000000 + *DigitsUpTo(fraction, 999999999);
  }
  if (!valid || (nanoseconds == 0 && !zero_allowed)) {
    return InvalidArgumentError(absl::StrCat("expected seconds, ",
                                             zero_allowed ? "0 or more" : "more than 0",
                                             ", for example 30 or 0.5"));
  }
  return Duration(nanoseconds);
}

absl::StatusOr<double> ParseInterval(const std::string& text) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !(value > 0)) {
    return InvalidArgumentError("expected a number of seconds, more than 0, for example 0.1");
  }
  return value;
}

absl::StatusOr<bool> ParseFlag(const std::string& text) {
  std::string digits(absl::StripAsciiWhitespace(text));
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.erase(0, 1);
  if (!IsDigits(digits)) return InvalidArgumentError("expected a number: 0 is off, 1 is on");
  return digits.find_first_not_of('0') != std::string::npos;
}

absl::StatusOr<bool> ParseBool(const std::string& text) {
  const std::string word = absl::AsciiStrToLower(text);
  for (const char* yes : {"1", "true", "t", "yes", "y", "on"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"0", "false", "f", "no", "n", "off"}) {
    if (word == no) return false;
  }
  return InvalidArgumentError("expected 1, 0, true or false");
}

absl::Status CheckHost(const std::string& host) {
  const bool has_good_characters = std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
  });
  if (!host.empty() && host.size() <= kMaxHostLength && has_good_characters && host[0] != '-') {
    return absl::OkStatus();
  }
  return InvalidArgumentError("expected a host name or an IP address");
}

absl::StatusOr<std::string> ParseHost(const std::string& text) {
  const bool has_brackets = text.size() > 2 && text.front() == '[' && text.back() == ']';
  std::string host = has_brackets ? text.substr(1, text.size() - 2) : text;
  if (absl::Status status = CheckHost(host); !status.ok()) return status;
  return host;
}

absl::StatusOr<Endpoint> ParseEndpoint(const std::string& text, uint16_t default_port) {
  const absl::Status wrong =
      InvalidArgumentError("expected HOST:PORT or [IPV6]:PORT with a port between 0 and 65535");
  const absl::StatusOr<HostAndPort> cut = SplitPort(std::string(absl::StripAsciiWhitespace(text)));
  if (!cut.ok()) return cut.status().message().empty() ? wrong : cut.status();
  if (cut->host.empty() && !cut->port.empty()) {
    return InvalidArgumentError(
        "the host is missing; expected HOST:PORT, HOST as all nodes reach "
        "it (localhost for a job of one node)");
  }
  if (!CheckHost(cut->host).ok()) return wrong;
  Endpoint endpoint{.host = cut->host, .port = default_port};
  if (cut->port.empty() && default_port == 0) return InvalidArgumentError("expected HOST:PORT");
  if (cut->port.empty()) return endpoint;
  const absl::StatusOr<uint16_t> number = ParsePort(cut->port.substr(1));
  if (cut->port[0] != ':' || !number.ok()) return wrong;
  endpoint.port = *number;
  return endpoint;
}

absl::StatusOr<std::string> ParseName(const std::string& text) {
  // What would be escaped in a message would also differ between two nodes.
  const bool has_control = std::any_of(text.begin(), text.end(), absl::ascii_iscntrl);
  if (has_control || EscapeControl(text) != text) {
    return InvalidArgumentError("expected printable characters in UTF-8");
  }
  if (text.size() > kMaxNameLength) {
    return InvalidArgumentError(absl::StrCat("expected at most ", kMaxNameLength, " bytes"));
  }
  return text;
}

absl::StatusOr<Endpoint> ParseBind(const std::string& text) {
  if (ParsePort(text).ok()) {
    return InvalidArgumentError(absl::StrCat("expected [HOST]:PORT; did you mean :", text, "?"));
  }
  if (text.empty() || text[0] != ':') return ParseEndpoint(text, kDefaultRendezvousPort);
  const absl::StatusOr<uint16_t> port = ParsePort(text.substr(1));
  if (!port.ok())
    return InvalidArgumentError("expected [HOST]:PORT with a port between 0 and 65535");
  return Endpoint{.host = "", .port = *port};
}

absl::StatusOr<StreamChoice> ParseStreamChoice(const std::string& text) {
  const absl::Status wrong = InvalidArgumentError(
      "expected 0 (none), 1 (stdout), 2 (stderr), 3 (both), or one for each local rank as in "
      "0:1,12:3");
  StreamChoice choice;
  if (const std::optional<Streams> everyone = OneStreamChoice(text)) {
    choice.everyone = *everyone;
    return choice;
  }
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  for (const std::string& part : parts) {
    const size_t colon = part.find(':');
    if (colon == std::string::npos) return wrong;
    const std::optional<int> rank = DigitsUpTo(part.substr(0, colon), kMaxWorkersPerNode - 1);
    const std::optional<Streams> streams = OneStreamChoice(part.substr(colon + 1));
    if (!rank || !streams) return wrong;
    choice.by_local_rank[*rank] = *streams;
  }
  return choice;
}

}  // namespace ddprun::launcher
