#include "launcher/cli/option_values.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

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

// Without white space and one pair of quotes around it, which shells and YAML leave behind.
std::string Unquoted(const std::string& text) {
  std::string out = text;
  absl::StripAsciiWhitespace(&out);
  const bool is_quoted =
      out.size() >= 2 && out.front() == out.back() && (out.front() == '"' || out.front() == '\'');
  return is_quoted ? out.substr(1, out.size() - 2) : out;
}

std::optional<Streams> OneStreamChoice(const std::string& text) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3') return std::nullopt;
  const int bits = text[0] - '0';
  return Streams{.out = (bits & 1) != 0, .err = (bits & 2) != 0};
}

absl::StatusOr<uint16_t> ParsePort(const std::string& text) {
  const std::optional<int> port = DigitsUpTo(text, 65535);
  if (!port) return InvalidArgumentError("expected a port between 0 and 65535");
  return static_cast<uint16_t>(*port);
}

// The keys of torchrun that mean nothing here are known, so that nobody is warned of them.
const std::vector<std::string>& KnownConfKeys() {
  static const std::vector<std::string> keys = {
      "join_timeout",           "last_call_timeout", "keep_alive_interval", "is_host",
      "keep_alive_max_attempt", "timeout",           "orphan_timeout",      "exit_barrier_timeout",
      "close_timeout",          "heartbeat_timeout", "read_timeout",        "store_type"};
  return keys;
}

absl::StatusOr<std::map<std::string, std::string>> SplitConf(const std::string& text) {
  std::map<std::string, std::string> conf;
  const std::vector<std::string> pairs = absl::StrSplit(Unquoted(text), ',');
  for (const std::string& pair : pairs) {
    if (Unquoted(pair).empty()) continue;
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0) {
      return InvalidArgumentError("expected <key>=<value>,<key>=<value>...");
    }
    const std::string key = Unquoted(pair.substr(0, equals));
    const std::string value = Unquoted(pair.substr(equals + 1));
    if (value.empty()) return InvalidArgumentError(absl::StrCat(Quoted(key), " needs a value"));
    conf[key] = value;
  }
  return conf;
}

// Reads keys out of a conf, remembering the first thing that was wrong.
class ConfReader {
 public:
  explicit ConfReader(std::map<std::string, std::string> conf) : conf_(std::move(conf)) {}

  std::optional<Duration> Seconds(const std::string& key, bool zero_allowed = false) {
    return Read<Duration>(
        key, [&](const std::string& text) { return ParseSeconds(text, zero_allowed); });
  }
  std::optional<int> Number(const std::string& key) {
    return Read<int>(key, [](const std::string& text) { return ParseNumber(text, 1, 1000000); });
  }
  std::optional<bool> Bool(const std::string& key) { return Read<bool>(key, ParseBool); }
  absl::Status status() const { return status_; }

 private:
  template <typename T, typename Parse>
  std::optional<T> Read(const std::string& key, Parse parse) {
    const auto found = conf_.find(key);
    if (found == conf_.end()) return std::nullopt;
    absl::StatusOr<T> value = parse(found->second);
    if (value.ok()) return *value;
    if (status_.ok()) {
      status_ = InvalidArgumentError(
          absl::StrCat(key, " ", Quoted(found->second), ": ", value.status().message()));
    }
    return std::nullopt;
  }

  std::map<std::string, std::string> conf_;
  absl::Status status_;
};

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
    return InvalidArgumentError(absl::StrCat("expected a number from 1 to ", kMaxWorkersPerNode,
                                             ", gpu, auto, or cpu (", cpu_count, " here)"));
  }
  return *count;
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

absl::StatusOr<Endpoint> ParseEndpoint(const std::string& text, uint16_t default_port) {
  const absl::Status wrong =
      InvalidArgumentError("expected HOST:PORT or [IPV6]:PORT with a port between 0 and 65535");
  std::string host = text;
  std::string port;
  if (!text.empty() && text[0] == '[') {
    const size_t close = text.find(']');
    if (close == std::string::npos) return wrong;
    host = text.substr(1, close - 1);
    if (host.find(':') == std::string::npos) return wrong;
    port = text.substr(close + 1);
  } else {
    // More than one colon and no brackets: an IPv6 address without a port.
    const size_t colon = text.find(':');
    if (colon != std::string::npos && text.find(':', colon + 1) == std::string::npos) {
      host = text.substr(0, colon);
      port = text.substr(colon);
    }
  }
  if (!CheckHost(host).ok()) return wrong;
  Endpoint endpoint{.host = host, .port = default_port};
  if (port.empty() && default_port == 0) return InvalidArgumentError("expected HOST:PORT");
  if (port.empty()) return endpoint;
  const absl::StatusOr<uint16_t> number = ParsePort(port.substr(1));
  if (port[0] != ':' || !number.ok()) return wrong;
  endpoint.port = *number;
  return endpoint;
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

absl::StatusOr<RendezvousOptions> ParseRendezvousConf(const std::string& text,
                                                      std::vector<std::string>& warnings) {
  absl::StatusOr<std::map<std::string, std::string>> conf = SplitConf(text);
  if (!conf.ok()) return conf.status();
  const std::vector<std::string>& known = KnownConfKeys();
  for (const auto& [key, value] : *conf) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string nearest = NearestName(key, known);
    warnings.push_back(absl::StrCat("--rdzv_conf: unknown key ", Quoted(key), " is ignored; ",
                                    nearest.empty()
                                        ? absl::StrCat("known keys: ", absl::StrJoin(known, ", "))
                                        : absl::StrCat("did you mean ", nearest, "?")));
  }
  if (conf->contains("store_type") && conf->at("store_type") != "tcp") {
    return InvalidArgumentError(
        absl::StrCat("store_type ", Quoted(conf->at("store_type")), ": expected tcp"));
  }
  ConfReader reader(*std::move(conf));
  RendezvousOptions options;
  // `timeout` is what torchrun's users reach for first; there it does nothing under c10d.
  if (const auto timeout = reader.Seconds("timeout")) options.join_timeout = *timeout;
  if (const auto join = reader.Seconds("join_timeout")) options.join_timeout = *join;
  options.last_call = reader.Seconds("last_call_timeout", true).value_or(options.last_call);
  options.exit_barrier_timeout =
      reader.Seconds("exit_barrier_timeout", true).value_or(options.exit_barrier_timeout);
  options.orphan_timeout = reader.Seconds("orphan_timeout").value_or(options.join_timeout);
  const std::optional<Duration> interval = reader.Seconds("keep_alive_interval");
  const std::optional<int> attempts = reader.Number("keep_alive_max_attempt");
  if (interval || attempts) {
    // A year times a million would not fit: a year is as good as for ever.
    const double seconds =
        std::chrono::duration<double>(interval.value_or(std::chrono::seconds(5))).count() *
        attempts.value_or(3);
    options.evict_after = std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(std::min(seconds, double{kMaxSeconds})));
  }
  options.is_host = reader.Bool("is_host");
  if (!reader.status().ok()) return reader.status();
  return options;
}

}  // namespace ddprun::launcher
