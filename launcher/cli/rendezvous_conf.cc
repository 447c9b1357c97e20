// --rdzv_conf.
#include "launcher/cli/option_values.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

using absl::InvalidArgumentError;

constexpr double kMaxSeconds = 365 * 24 * 3600;
// Three beats of 100 ms. Below that a healthy node that the scheduler leaves out, or a lost packet
// (TCP sends again after 200 ms at the earliest), would look like a lost node.
constexpr double kMinEvictSeconds = 0.3;

// Without white space and one pair of quotes around it, which shells and YAML leave behind.
std::string Unquoted(const std::string& text) {
  std::string out = text;
  absl::StripAsciiWhitespace(&out);
  const bool is_quoted =
      out.size() >= 2 && out.front() == out.back() && (out.front() == '"' || out.front() == '\'');
  return is_quoted ? out.substr(1, out.size() - 2) : out;
}

// The keys of torchrun that mean nothing here are known, so that nobody is warned of them.
const std::vector<std::string>& KnownConfKeys() {
  static const std::vector<std::string> keys = {"join_timeout",
                                                "last_call_timeout",
                                                "keep_alive_interval",
                                                "is_host",
                                                "keep_alive_max_attempt",
                                                "timeout",
                                                "orphan_timeout",
                                                "exit_barrier_timeout",
                                                "close_timeout",
                                                "heartbeat_timeout",
                                                "read_timeout",
                                                "store_type",
                                                "rank"};
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
  std::optional<int> Number(const std::string& key, int min) {
    return Read<int>(key, [&](const std::string& text) { return ParseNumber(text, min, 1000000); });
  }
  std::optional<bool> Bool(const std::string& key) { return Read<bool>(key, ParseBool); }
  // What torchrun reads and we do not need: closing takes no time, a silent node is found by
  // keep_alive_*, our requests have deadlines of their own, the rank is --node_rank.
  void CheckUnused() {
    for (const char* key : {"close_timeout", "heartbeat_timeout", "read_timeout"}) Seconds(key);
    Number("rank", 0);
    Read<bool>("store_type", [](const std::string& text) -> absl::StatusOr<bool> {
      if (absl::AsciiStrToLower(text) == "tcp") return true;
      return InvalidArgumentError("expected tcp; nodes meet at HOST:PORT, not in a file");
    });
  }
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

absl::StatusOr<RendezvousConf> ParseRendezvousConf(const std::string& text,
                                                   std::vector<std::string>& warnings) {
  absl::StatusOr<std::map<std::string, std::string>> conf = SplitConf(text);
  if (!conf.ok()) return conf.status();
  const std::vector<std::string>& known = KnownConfKeys();
  for (const auto& [key, value] : *conf) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string nearest = NearestName(key, known);
    warnings.push_back(absl::StrCat("unknown key ", Quoted(key), " is ignored; ",
                                    nearest.empty()
                                        ? absl::StrCat("known keys: ", absl::StrJoin(known, ", "))
                                        : absl::StrCat("did you mean ", nearest, "?")));
  }
  ConfReader reader(*std::move(conf));
  RendezvousConf options;
  // `timeout` is what torchrun's users reach for first; there it does nothing under c10d.
  if (const auto timeout = reader.Seconds("timeout")) options.join_timeout = *timeout;
  if (const auto join = reader.Seconds("join_timeout")) options.join_timeout = *join;
  options.last_call = reader.Seconds("last_call_timeout", true).value_or(options.last_call);
  options.exit_barrier_timeout =
      reader.Seconds("exit_barrier_timeout", true).value_or(options.exit_barrier_timeout);
  options.orphan_timeout = reader.Seconds("orphan_timeout").value_or(options.join_timeout);
  const std::optional<Duration> interval = reader.Seconds("keep_alive_interval");
  const std::optional<int> attempts = reader.Number("keep_alive_max_attempt", 1);
  if (interval || attempts) {
    // A year times a million would not fit: a year is as good as for ever.
    const double seconds =
        std::chrono::duration<double>(interval.value_or(std::chrono::seconds(5))).count() *
        attempts.value_or(3);
    if (reader.status().ok() && seconds < kMinEvictSeconds) {
      return InvalidArgumentError(absl::StrCat(
          "keep_alive_interval x keep_alive_max_attempt is ", seconds, " s: expected at least ",
          kMinEvictSeconds, " s, or nodes that are only slow would be taken for lost"));
    }
    options.evict_after = std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(std::min(seconds, kMaxSeconds)));
  }
  options.is_host = reader.Bool("is_host");
  reader.CheckUnused();
  if (!reader.status().ok()) return reader.status();
  return options;
}

}  // namespace ddprun::launcher
