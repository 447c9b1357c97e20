#include "ddp/rank_balance.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker_runtime/comm/name_ranks.h"
#include "worker_runtime/milliseconds_text.h"

namespace ddp {
namespace {

// What a rank takes by itself at least, whatever of its waiting for a shared core lay in that time.
double LeastSelfTime(const RankSteps& rank) {
  if (!rank.is_short_of_cores()) return rank.self_ms();
  return std::max(0.0, rank.self_ms() - std::max(0.0, rank.step_wait_ms));
}

// The lower one of two, so that of two ranks the faster one is what is usual.
double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double UsualSelfTime(std::span<const RankSteps> ranks) {
  std::vector<double> times;
  for (const RankSteps& rank : ranks) times.push_back(rank.self_ms());
  return Median(std::move(times));
}

// Of all ranks together. Waits below 0: the kernel does not tell on some rank.
struct Totals {
  double step_ms = 0, exposed_ms = 0, wait_ms = 0;
};

Totals TotalsOf(std::span<const RankSteps> ranks) {
  Totals totals;
  bool is_known = true;
  for (const RankSteps& rank : ranks) {
    totals.step_ms += rank.step_ms;
    totals.exposed_ms += rank.exposed_ms;
    totals.wait_ms += rank.communication_wait_ms;
    is_known = is_known && rank.communication_wait_ms >= 0;
  }
  if (!is_known) totals.wait_ms = -1;
  return totals;
}

std::string ShareText(const Totals& totals) {
  if (totals.wait_ms < 0 || totals.exposed_ms <= 0) return "an unknown part";
  return absl::StrFormat("up to %.0f %%", 100 * std::min(1.0, totals.wait_ms / totals.exposed_ms));
}

}  // namespace

std::vector<int> SlowRanks(std::span<const RankSteps> ranks) {
  std::vector<int> slow;
  if (ranks.size() < 2) return slow;
  const double usual = UsualSelfTime(ranks);
  for (size_t i = 0; i < ranks.size(); ++i) {
    const double excess = LeastSelfTime(ranks[i]) - usual;
    if (excess > kSlowRankMargin * ranks[i].step_ms) slow.push_back(static_cast<int>(i));
  }
  return slow;
}

std::string SlowRankText(std::span<const RankSteps> ranks) {
  const std::vector<int> slow = SlowRanks(ranks);
  if (slow.empty()) return "";
  const RankSteps* slowest = &ranks[static_cast<size_t>(slow[0])];
  for (const int rank : slow) {
    const RankSteps& other = ranks[static_cast<size_t>(rank)];
    if (other.self_ms() > slowest->self_ms()) slowest = &other;
  }
  const double waited = std::min(slowest->step_wait_ms, slowest->self_ms());
  const bool is_told = waited > kSlowRankMargin * slowest->step_ms;
  const bool is_one = slow.size() == 1;
  return absl::StrFormat(
      "%s %s slow: %s %s a step by %s%s, the others %s; they wait for %s",
      internal::NameRanks(slow), is_one ? "is" : "are", is_one ? "it takes" : "they take up to",
      internal::MillisecondsText(slowest->self_ms()), is_one ? "itself" : "themselves",
      is_told ? absl::StrCat(", up to ", internal::MillisecondsText(waited),
                             " of it waiting for a CPU core")
              : "",
      internal::MillisecondsText(UsualSelfTime(ranks)), is_one ? "it" : "them");
}

std::string SpeedAdvice(std::span<const RankSteps> ranks, int rank,
                        const std::string& network_advice) {
  if (std::string slow = SlowRankText(ranks); !slow.empty()) return slow;
  const RankSteps& mine = ranks[static_cast<size_t>(rank)];
  if (mine.exposed_ms <= StepMetrics::kExposedShareWarning * mine.step_ms) return "";
  const Totals totals = TotalsOf(ranks);
  const bool is_short = mine.is_short_of_cores();
  const bool is_waited_for = totals.wait_ms > StepMetrics::kExposedShareWarning * totals.step_ms;
  const bool is_unknown = totals.wait_ms < 0;
  if (!is_waited_for && !(is_short && is_unknown)) return network_advice;
  const std::string who =
      is_short
          ? absl::StrFormat(": %d ranks share %d %s; fewer ranks or more cores would help",
                            mine.ranks_on_cores, mine.cores, mine.cores == 1 ? "core" : "cores")
          : ", which other threads or programs use";
  return absl::StrFormat(
      "%.1f %% of the step is exposed communication (%.2f of %.2f ms), of which %s is waiting for "
      "a CPU core%s",
      100 * mine.exposed_ms / mine.step_ms, mine.exposed_ms, mine.step_ms, ShareText(totals), who);
}

}  // namespace ddp
