// Ranks in a sentence. [pure]
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NAME_RANKS_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NAME_RANKS_H_

#include <string>
#include <vector>

namespace ddp::internal {

// "rank 2", "ranks 2 and 5", "ranks 2, 3, 4, 5, 6, 7, 8, 9 and 20 more".
std::string NameRanks(const std::vector<int>& ranks);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NAME_RANKS_H_
