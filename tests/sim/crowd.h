// A job of very many nodes, up to 100,000, in virtual time: how long a round takes to form and to
// end, and how many messages that are. All of it is what runs in the small jobs that a seed draws.
#ifndef DDPRUN_TESTS_SIM_CROWD_H_
#define DDPRUN_TESTS_SIM_CROWD_H_

#include <string>
#include <vector>

#include "rendezvous/base/time.h"
#include "tests/sim/cluster.h"

namespace ddprun::sim {

// Something that all nodes come to hear.
struct CrowdPhase {
  std::string name;
  TimePoint since;
  // Until the last node has heard it, since when it could first be known; negative: some never did.
  Duration took{-1};
  Traffic sent;  // since the phase before
};

struct CrowdResult {
  std::vector<CrowdPhase> phases;
  RunResult run;
};

// One worker a node, ten thousand starts a second, messages take 0.1 to 5 ms, and the coordinator
// no time at all. A round forms; a worker fails; in the next round an agent is killed, and started
// again after 12 s; the third one succeeds.  REQUIRES: `nodes` is at least 2.
CrowdResult RunCrowd(int nodes);

// The same with etcd, where in the first round the leader's agent is killed for good. With
// `is_silent` its machine is cut off from the others and from etcd instead. The others succeed.
RunResult RunCrowdTakeover(int nodes, bool is_silent);

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_CROWD_H_
