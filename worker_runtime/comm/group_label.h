// How whoever looks at several processes knows a group. [pure]
#ifndef DDPRUN_WORKER_RUNTIME_COMM_GROUP_LABEL_H_
#define DDPRUN_WORKER_RUNTIME_COMM_GROUP_LABEL_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::internal {

struct GroupLabel {
  uint64_t key = 0;   // the same on all ranks of the group, and no other group's; 0: none is needed
  std::string ranks;  // "ranks 0-3", of the job
};

// `told` is what all ranks of the group, and no others, were told when it formed.
GroupLabel MakeGroupLabel(std::string_view told, const std::vector<int>& job_ranks);

// Of several groups of the same ranks, which are told apart by `backend`. Never 0.
uint64_t KeyOf(const GroupLabel& label, std::string_view backend);

// "ranks 0-3", "ranks 0, 2, 5-7 and 20 more": at most 56 bytes. REQUIRES: ascending.
std::string NameRankRanges(const std::vector<int>& ranks);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_GROUP_LABEL_H_
