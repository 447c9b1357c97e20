#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/option_values.h"

namespace ddprun::launcher {
namespace {

// Each costs a few seconds twice, and by default all of it shall end within two minutes.
constexpr size_t kMostRankCounts = 6;
constexpr int kMostRanks = 64;
constexpr Duration kShortestRow = std::chrono::milliseconds(100);
constexpr Duration kLongestRow = std::chrono::seconds(60);

}  // namespace

absl::StatusOr<std::vector<int>> ParseRankCounts(const std::string& text) {
  std::set<int> counts = {1};
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const absl::StatusOr<int> count = ParseNumber(std::string(part), 1, kMostRanks);
    if (!count.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "expected numbers of ranks from 1 to ", kMostRanks, " separated by commas, as in 1,2,4"));
    }
    counts.insert(*count);
  }
  if (counts.size() > kMostRankCounts) {
    return absl::InvalidArgumentError(absl::StrCat("expected at most ", kMostRankCounts,
                                                   " different numbers of ranks, 1 included"));
  }
  return std::vector<int>(counts.begin(), counts.end());
}

absl::StatusOr<Duration> ParseBenchSeconds(const std::string& text) {
  const absl::StatusOr<Duration> seconds = ParseSeconds(text, /*zero_allowed=*/false);
  if (seconds.ok() && *seconds >= kShortestRow && *seconds <= kLongestRow) return seconds;
  return absl::InvalidArgumentError("expected seconds from 0.1 to 60, for example 3 or 0.5");
}

}  // namespace ddprun::launcher
