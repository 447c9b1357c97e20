// --rdzv-conf.
#include "launcher/cli/option_values.h"

#include <algorithm>
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

// By their keys.
absl::StatusOr<GivenOptions> SplitConf(const std::string& text) {
  GivenOptions conf;
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
    conf[key] = {.text = value, .source = key};
  }
  return conf;
}

absl::StatusOr<Duration> Seconds(const std::string& text) { return ParseSeconds(text, false); }
absl::StatusOr<Duration> SecondsOrNone(const std::string& text) { return ParseSeconds(text, true); }

// How long a silent node stays, from the interval of its beats and how many may fail.
absl::StatusOr<Duration> EvictAfter(Duration interval, int attempts) {
  // A year times a million would not fit: a year is as good as for ever.
  const double seconds = std::chrono::duration<double>(interval).count() * attempts;
  if (seconds < kMinEvictSeconds) {
    return InvalidArgumentError(absl::StrCat(
        "keep_alive_interval x keep_alive_max_attempt is ", seconds, " s: expected at least ",
        kMinEvictSeconds, " s, or nodes that are only slow would be taken for lost"));
  }
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::min(seconds, kMaxSeconds)));
}

}  // namespace

absl::StatusOr<RendezvousConf> ParseRendezvousConf(const std::string& text,
                                                   std::vector<std::string>& warnings) {
  const absl::StatusOr<GivenOptions> conf = SplitConf(text);
  if (!conf.ok()) return conf.status();
  OptionReader reader(*conf);
  std::vector<std::string> known;
  const auto read = [&](const char* key, auto& target, auto parse) {
    known.emplace_back(key);
    reader.Into(key, target, parse);
  };
  RendezvousConf options;
  std::optional<Duration> join, timeout, orphan, unused;
  std::optional<int> attempts, unused_rank;
  read("join_timeout", join, Seconds);
  read("last_call_timeout", options.last_call, SecondsOrNone);
  read("keep_alive_interval", options.keep_alive_interval, Seconds);
  read("is_host", options.is_host, ParseBool);
  read("keep_alive_max_attempt", attempts,
       [](const std::string& number) { return ParseNumber(number, 1, 1000000); });
  // What torchrun's users reach for first; there it does nothing under c10d.
  read("timeout", timeout, Seconds);
  read("orphan_timeout", orphan, Seconds);
  read("exit_barrier_timeout", options.exit_barrier_timeout, SecondsOrNone);
  // What torchrun reads and we do not need: closing takes no time, a silent node is found by
  // keep_alive_*, our requests have deadlines of their own, the rank is --node-rank. Nodes do not
  // race for one key of a store: nobody backs off.
  for (const char* key : {"close_timeout", "heartbeat_timeout", "read_timeout"}) {
    read(key, unused, Seconds);
  }
  read("cas_backoff_max_seconds", unused, SecondsOrNone);
  bool is_tcp = true;
  read("store_type", is_tcp, [](const std::string& type) -> absl::StatusOr<bool> {
    if (absl::AsciiStrToLower(type) == "tcp") return true;
    return InvalidArgumentError("expected tcp; nodes meet at HOST:PORT, not in a file");
  });
  read("rank", unused_rank,
       [](const std::string& number) { return ParseNumber(number, 0, 1000000); });
  absl::StatusOr<rendezvous::EtcdOptions> etcd =
      ReadEtcdConf(reader, known, options.etcd_keys, warnings);
  if (!reader.status().ok()) return reader.status();
  if (!etcd.ok()) return etcd.status();
  options.etcd = *std::move(etcd);

  options.join_timeout = join.value_or(timeout.value_or(options.join_timeout));
  options.orphan_timeout = orphan.value_or(options.join_timeout);
  if (options.keep_alive_interval || attempts) {
    const absl::StatusOr<Duration> evict_after = EvictAfter(
        options.keep_alive_interval.value_or(std::chrono::seconds(5)), attempts.value_or(3));
    if (!evict_after.ok()) return evict_after.status();
    options.evict_after = *evict_after;
  }
  for (const auto& [key, value] : *conf) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string meant = DidYouMean(key, known);
    warnings.push_back(absl::StrCat(
        "unknown key ", Quoted(key), " is ignored",
        meant.empty() ? absl::StrCat("; known keys: ", absl::StrJoin(known, ", ")) : meant));
  }
  return options;
}

}  // namespace ddprun::launcher
