#include "launcher/check/check_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace ddprun::launcher {
namespace {

struct Candidate {
  int unit = 0;
  std::optional<double> best;  // of its pairs so far; none: it has had none
  size_t rounds = 0;           // in which it took part
};

bool HaveMet(int a, int b, const PairRounds& rounds) {
  for (const auto& round : rounds) {
    for (const PairResult& result : round) {
      if (result.pair == UnitPair{a, b} || result.pair == UnitPair{b, a}) return true;
    }
  }
  return false;
}

// The slowest first; who has had no partner yet stands in the middle.
std::vector<Candidate> SlowestFirst(const std::vector<int>& units, const PairRounds& rounds) {
  std::vector<Candidate> known, unknown;
  for (const int unit : units) {
    Candidate candidate{.unit = unit};
    for (const auto& round : rounds) {
      for (const PairResult& result : round) {
        if (result.pair.a != unit && result.pair.b != unit) continue;
        candidate.best = std::max(candidate.best.value_or(0), result.gb_per_s);
        ++candidate.rounds;
      }
    }
    (candidate.best ? known : unknown).push_back(candidate);
  }
  std::stable_sort(known.begin(), known.end(),
                   [](const Candidate& a, const Candidate& b) { return *a.best < *b.best; });
  const auto middle = known.begin() + static_cast<ptrdiff_t>((known.size() + 1) / 2);
  known.insert(middle, unknown.begin(), unknown.end());
  return known;
}

}  // namespace

int RoundsFor(size_t units) { return units < 2 ? 0 : units == 2 ? 1 : units % 2 == 0 ? 2 : 3; }

std::vector<UnitPair> NextPairs(const std::vector<int>& units, const PairRounds& rounds,
                                int rounds_again) {
  std::vector<UnitPair> pairs;
  if (units.size() < 2) return pairs;
  if (static_cast<int>(rounds.size()) >= RoundsFor(units.size()) + rounds_again) return pairs;
  if (rounds.empty()) {
    for (size_t i = 0; i + 1 < units.size(); i += 2) pairs.push_back({units[i], units[i + 1]});
    return pairs;
  }
  std::vector<Candidate> order = SlowestFirst(units, rounds);
  if (order.size() % 2 == 1) {
    // The fastest of those that have not sat out yet.
    const auto rested = std::find_if(order.rbegin(), order.rend(), [&](const Candidate& one) {
      return one.rounds == rounds.size();
    });
    order.erase(rested == order.rend() ? order.end() - 1 : rested.base() - 1);
  }
  // The slow half against the fast one, turned so far that the fewest meet again.
  const size_t half = order.size() / 2;
  size_t fewest = half + 1;
  for (size_t turn = 0; turn < half && fewest > 0; ++turn) {
    std::vector<UnitPair> turned;
    for (size_t i = 0; i < half; ++i) {
      turned.push_back({order[i].unit, order[half + (i + turn) % half].unit});
    }
    const auto repeated = std::count_if(turned.begin(), turned.end(), [&](const UnitPair& pair) {
      return HaveMet(pair.a, pair.b, rounds);
    });
    if (static_cast<size_t>(repeated) >= fewest) continue;
    fewest = static_cast<size_t>(repeated);
    pairs = std::move(turned);
  }
  return pairs;
}

std::string PairsText(const std::vector<UnitPair>& pairs) {
  return absl::StrJoin(pairs, " ", [](std::string* out, const UnitPair& pair) {
    absl::StrAppend(out, pair.a, "-", pair.b);
  });
}

std::vector<UnitPair> ParsePairs(std::string_view text) {
  std::vector<UnitPair> pairs;
  const absl::string_view words(text.data(), text.size());
  for (const absl::string_view word : absl::StrSplit(words, ' ', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(word, '-');
    UnitPair pair;
    if (!absl::SimpleAtoi(ends.first, &pair.a) || !absl::SimpleAtoi(ends.second, &pair.b)) continue;
    pairs.push_back(pair);
  }
  return pairs;
}

}  // namespace ddprun::launcher
