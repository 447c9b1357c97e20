// What a node of a job that trains says of itself.
#ifndef DDPRUN_TOOLS_BENCH_STATUS_NODE_VIEW_H_
#define DDPRUN_TOOLS_BENCH_STATUS_NODE_VIEW_H_

#include <cstdint>
#include <string>

#include "launcher/status/snapshot.h"
#include "rendezvous/core/types.h"

namespace ddprun::bench {

inline constexpr int kRanksOfNode = 8;

// Of the node with this place in a round, after so many steps: each rank with a GPU, a group of all
// ranks and one of those on its node.
launcher::NodeView TrainingNode(const rendezvous::Assignment& place, const std::string& id,
                                int64_t step);

}  // namespace ddprun::bench

#endif  // DDPRUN_TOOLS_BENCH_STATUS_NODE_VIEW_H_
