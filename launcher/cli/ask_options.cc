#include "launcher/cli/ask_options.h"

#include <set>
#include <vector>

#include "absl/status/status.h"

namespace ddprun::launcher {
namespace {

constexpr int kMaxRankNumber = (1 << 24) - 1;

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
  options.is_json = read.Find("json") != nullptr;
  options.is_after_step = read.Find("after_step") != nullptr;
  options.follows = read.Find("follow") != nullptr;
  read.Into("rank", options.rank,
            [](const std::string& text) { return ParseNumber(text, 0, kMaxRankNumber); });
  read.Into("ranks", options.ranks,
            [](const std::string& text) -> absl::StatusOr<std::vector<int>> {
              const absl::StatusOr<std::set<int>> ranks = ParseLocalRanks(text);
              if (!ranks.ok() || ranks->empty()) {
                return absl::InvalidArgumentError("expected ranks by comma, as in 0,12");
              }
              return std::vector<int>(ranks->begin(), ranks->end());
            });
  read.Into("dir", options.directory, ParsePath);
  if (options.what == What::kLogs && !options.rank && read.status().ok()) {
    read.Fail(absl::InvalidArgumentError("--rank=N is needed: whose output?"));
  }
  return options;
}

}  // namespace ddprun::launcher
