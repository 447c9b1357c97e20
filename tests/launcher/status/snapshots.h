// Snapshots that the tests of this folder show and send.
#ifndef DDPRUN_TESTS_LAUNCHER_STATUS_SNAPSHOTS_H_
#define DDPRUN_TESTS_LAUNCHER_STATUS_SNAPSHOTS_H_

#include <cstdint>
#include <string>

#include "launcher/status/snapshot.h"

namespace ddprun::testing {

// A rank that trains: all columns are known.
launcher::RankView TrainingRank(int rank, int local_rank, int64_t step);
// `count` such ranks on one node, the first of them `first_rank`.
launcher::NodeView TrainingNode(const std::string& host, int node_rank, int first_rank, int count);
// `nodes` such nodes, host-0 and on, in round 1.
launcher::JobView TrainingJob(int nodes, int ranks_of_each);
// 2 nodes of 2 ranks with every member set to something that is not its default.
launcher::JobView FullJob();
// Rank 2 of 4 has not come to the all-reduce in which the others wait.
launcher::JobView HungJob();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_LAUNCHER_STATUS_SNAPSHOTS_H_
