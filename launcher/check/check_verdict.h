// Which node, or on one node which rank, is slow or broken. [pure]
#ifndef DDPRUN_LAUNCHER_CHECK_CHECK_VERDICT_H_
#define DDPRUN_LAUNCHER_CHECK_CHECK_VERDICT_H_

#include <string>
#include <vector>

#include "launcher/check/check_report.h"

namespace ddprun::launcher {

enum class UnitState { kWell, kSlow, kBroken };

struct UnitVerdict {
  int unit = 0;
  UnitState state = UnitState::kWell;
  double times = 1;  // how many times slower than the median, in what it is worst at
  std::string why;   // empty: it is well
};

struct CheckVerdict {
  std::vector<UnitVerdict> units;  // the worst first
  bool is_well = true;
  // "check: 4 nodes, 16 ranks: node c is slow: computes 2.1 times slower than the median"
  std::string sentence;
};

// Compares each unit with the median of all, so that what is slow everywhere is no finding; of an
// even number the faster of the two in the middle. With others a unit counts as fast as its best
// pair: beside a slow one the fast are slow as well, but only once. A unit of which all pairs
// failed is broken; a pair that failed while both were well elsewhere is told as that.
CheckVerdict JudgeCheck(const CheckFacts& facts);

// The pairs of the next round; none: it is over. Whoever is slow when all has been tried is
// measured again, in so many rounds at most: other programs may have had its cores, or its network.
inline constexpr int kRoundsAgain = 3;
std::vector<UnitPair> PairsAfter(const CheckFacts& facts);

// "ok", "slow", "broken"
const char* StateWord(UnitState state);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CHECK_CHECK_VERDICT_H_
