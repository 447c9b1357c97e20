// Several ways to do a step, timed in turns among the ranks of a group.
#ifndef DDPRUN_TOOLS_BENCH_DDP_TURNS_H_
#define DDPRUN_TOOLS_BENCH_DDP_TURNS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ddp/communicator.h"

namespace ddprun::bench {

struct Way {
  std::string name;
  std::function<absl::Status()> step;
  // A step: medians over the turns of the slowest rank's, and of what it took more than that of the
  // first way in the same turn, so that a machine that grows slower does not count.
  double ms = 0;
  double more_ms = 0;
};

// Collective. Each turn does a block of steps of every way, all ranks beginning together, so that
// what else the machine does meets all ways alike. For about so many seconds, 3 turns at least.
absl::Status MeasureInTurns(ddp::Communicator& group, double seconds, std::vector<Way>& ways);

}  // namespace ddprun::bench

#endif  // DDPRUN_TOOLS_BENCH_DDP_TURNS_H_
