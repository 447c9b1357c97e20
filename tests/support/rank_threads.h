// The ranks of one group as threads of the test, over a real store and real sockets.
#ifndef DDPRUN_TESTS_SUPPORT_RANK_THREADS_H_
#define DDPRUN_TESTS_SUPPORT_RANK_THREADS_H_

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "worker_runtime/comm/form_group.h"

namespace ddprun::testing {

struct RankThreadsOptions {
  // Ranks per node; ranks of one node share memory. {2, 2}: two nodes of two ranks.
  std::vector<int> nodes = {2};
  // Between all ranks, whatever the nodes.
  bool use_tcp = false;
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
  std::string round_key{};  // GroupMember's
};

// A key of a round, for layouts whose links are sealed.
inline const std::string kTestRoundKey(32, 'k');

// Runs `body` once per rank at the same time and returns when all have returned. Every group must
// form (checked). What `body` checks with doctest is counted as usual.
void RunRankThreads(const RankThreadsOptions& options,
                    const std::function<void(ddp::Communicator&)>& body);

// The status with which each rank formed its group; for groups that must not form.
std::vector<absl::Status> FormRankThreads(const std::vector<ddp::internal::GroupMember>& members);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_RANK_THREADS_H_
