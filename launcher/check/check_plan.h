// Who all-reduces with whom, round after round, so that the rounds together name a slow or broken
// unit: a node or, on one node, a rank. [pure]
#ifndef DDPRUN_LAUNCHER_CHECK_CHECK_PLAN_H_
#define DDPRUN_LAUNCHER_CHECK_CHECK_PLAN_H_

#include <string>
#include <string_view>
#include <vector>

namespace ddprun::launcher {

struct UnitPair {
  int a = 0;
  int b = 0;
  friend bool operator==(const UnitPair&, const UnitPair&) = default;
};

// How a pair has fared.
struct PairResult {
  UnitPair pair;
  double gb_per_s = 0;  // 0: it failed
  std::string failure;  // why, in the words of a rank of it
};
using PairRounds = std::vector<std::vector<PairResult>>;

// Two alone learn all from one round, an even number from two. Of an odd number one sits out in
// each, so it takes three until each has had two partners.
int RoundsFor(size_t units);

// The pairs of the round after `rounds`; none: all has been tried. At first neighbours, then the
// slowest half with the fastest, so that whoever was slow or failed beside another meets one that
// was well. `units` are those that can take part, ascending.
// `rounds_again` come besides RoundsFor.
std::vector<UnitPair> NextPairs(const std::vector<int>& units, const PairRounds& rounds,
                                int rounds_again = 0);

// "0-1 2-3", "" for none; what the leader tells the ranks.
std::string PairsText(const std::vector<UnitPair>& pairs);
// What is no pair is left out.
std::vector<UnitPair> ParsePairs(std::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CHECK_CHECK_PLAN_H_
