#include "launcher/cli/ask_options.h"

#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::launcher {
namespace {

constexpr int kMaxRankNumber = (1 << 24) - 1;
// So many ranks fit into one question. Without a choice all are asked.
constexpr size_t kMaxRanks = 512;

// "0,12" and "0-7,12"; ascending, each once.
absl::StatusOr<std::vector<int>> ParseRanks(const std::string& text) {
  std::set<int> ranks;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<std::string> ends = absl::StrSplit(part, '-');
    const absl::StatusOr<int> first = ParseNumber(ends.front(), 0, kMaxRankNumber);
    const absl::StatusOr<int> last = ParseNumber(ends.back(), 0, kMaxRankNumber);
    if (ends.size() == 2 && first.ok() && last.ok() && *last < *first) {
      return absl::InvalidArgumentError(absl::StrCat("'", EscapeControl(std::string(part)),
                                                     "' goes backwards; expected ", *last, "-",
                                                     *first));
    }
    if (ends.size() > 2 || !first.ok() || !last.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", EscapeControl(std::string(part)),
                       "' is no rank; expected ranks by comma, as in 0-7,12"));
    }
    for (int rank = *first; rank <= *last && ranks.size() <= kMaxRanks; ++rank) ranks.insert(rank);
    if (ranks.size() > kMaxRanks) {
      return absl::InvalidArgumentError(
          absl::StrCat("more than ", kMaxRanks, " ranks; leave --ranks out to ask all"));
    }
  }
  return std::vector<int>(ranks.begin(), ranks.end());
}

}  // namespace

AskOptions AskOf(std::string_view name, const std::string& job, OptionReader& read) {
  using What = AskOptions::What;
  AskOptions options;
  options.what = name == "top"    ? What::kTop
                 : name == "list" ? What::kList
                 : name == "stop" ? What::kStop
                 : name == "logs" ? What::kLogs
                 : name == "dump" ? What::kDump
                                  : What::kStatus;
  options.job = job;
  read.Into("coordinator", options.coordinator,
            [](const std::string& text) -> absl::StatusOr<std::optional<Endpoint>> {
              absl::StatusOr<Endpoint> place = ParseEndpoint(text, 0);
              if (!place.ok() || place->host.empty() || place->port == 0) {
                return absl::InvalidArgumentError("expected HOST:PORT");
              }
              return std::optional(*std::move(place));
            });
  options.trust = ReadTrustFiles(read);
  options.is_json = read.Find("json") != nullptr;
  const bool is_now = read.Find("now") != nullptr;
  if (is_now) options.stop_how = rendezvous::StopHow::kNow;
  if (const GivenValue* graceful = read.Find("graceful")) {
    options.stop_how = rendezvous::StopHow::kAfterStep;
    if (is_now) {
      read.Fail(absl::InvalidArgumentError(absl::StrCat(
          graceful->source, " lets the workers save and --now kills them: give one of them")));
    }
  }
  options.follows = read.Find("follow") != nullptr;
  read.Into("rank", options.rank,
            [](const std::string& text) { return ParseNumber(text, 0, kMaxRankNumber); });
  read.Into("ranks", options.ranks, ParseRanks);
  read.Into("dir", options.directory, ParsePath);
  if (options.what == What::kLogs && !options.rank && read.status().ok()) {
    read.Fail(absl::InvalidArgumentError(
        "which rank's output? Expected --rank=N, as in ddprun logs --rank=0"));
  }
  return options;
}

}  // namespace ddprun::launcher
