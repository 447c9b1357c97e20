// What is said of ranks that wait for others. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_HANG_WORDS_H_
#define DDPRUN_LAUNCHER_STATUS_HANG_WORDS_H_

#include <string>
#include <vector>

#include "launcher/status/group_waits.h"
#include "launcher/status/rank_index.h"

namespace ddprun::launcher {

// "all-reduce #88,123", with " of group tp" where there are several.
std::string OperationText(const GroupWait& wait);

// "rank 5 (node gpu-07) has not come to all-reduce #88,123 for 42 s; ranks 0-4, 6-31 wait for it;
// it computes (1.0 cores)".
std::string HangText(const RankIndex& ranks, const std::vector<GroupWait>& waits,
                     const Holdup& holdup);

// "waiting in all-reduce #88,123 for rank 5 (node gpu-07) for 12 s". `why`: what the late ranks do
// that excuses them, of one and of many: {"writes a checkpoint", "write a checkpoint"}.
struct Excuse {
  std::string of_one;
  std::string of_many;
};
std::string WaitingText(const RankIndex& ranks, const std::vector<GroupWait>& waits,
                        const Holdup& holdup, const std::vector<int>& excused, const Excuse& why);

// Where ranks that use no CPU wait: "futex_wait (3), nanosleep (1)".
std::string WaitPlacesText(const std::vector<const RankView*>& ranks);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_HANG_WORDS_H_
