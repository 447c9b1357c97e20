// What one rank measures, in a process of its own: whatever becomes of it, the rank can tell.
#ifndef DDPRUN_LAUNCHER_CHECK_CHECK_STAGE_H_
#define DDPRUN_LAUNCHER_CHECK_CHECK_STAGE_H_

#include <string>
#include <vector>

#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// The argument of a ddprun that is a rank of a check; behind it stand those of RunCheckRank, or of
// a stage.
inline constexpr char kCheckRankArgument[] = "__check_rank";
inline constexpr char kAloneStage[] = "alone";  // arithmetic, memory, all-reduce within the node
inline constexpr char kPairStage[] = "pair";    // + key space, rank, ranks: all-reduce with them

// Every wait for other ranks, and a whole stage: with GPUs CUDA and NCCL have to start.
struct StageLimits {
  std::chrono::milliseconds group;
  Duration stage;
};
StageLimits LimitsOfStage();

// Writes what it finds to stdout as it finds it (check_report.h) and returns the exit code.
int RunCheckStage(const std::vector<std::string>& words);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CHECK_CHECK_STAGE_H_
