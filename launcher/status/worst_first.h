// Which ranks to look at first. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_WORST_FIRST_H_
#define DDPRUN_LAUNCHER_STATUS_WORST_FIRST_H_

#include <cstddef>
#include <vector>

#include "launcher/status/snapshot.h"

namespace ddprun::launcher {

// Where a rank stands in a snapshot: nodes[node].ranks[index].
struct RankPlace {
  size_t node = 0;
  size_t index = 0;
  bool stands_out = false;   // something is unusual about it
  bool has_problem = false;  // a problem names it
  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

// The time from which a rank in an operation counts as waiting: shorter ones are everyday life.
inline constexpr double kNotableWait_s = 1;

// It has ended, and not well.
bool HasFailed(const RankView& rank);

// The group whose operation has been under way longest, else the one in which something happened
// last; null: none.
const GroupView* MainGroup(const RankView& rank);

// All ranks, those that stand out first: those that a problem names, in the problems' order; those
// that failed; those that others wait for; those behind by more than one step, the furthest first;
// those that wait longest; those that take 20 % more than the median before they wait, the slowest
// first. The others, and those alike, by rank.
std::vector<RankPlace> WorstFirst(const JobView& job);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_WORST_FIRST_H_
