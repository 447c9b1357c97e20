// One run of the simulator as a value: the job, its nodes, the network, and every fault with its
// time. A seed draws one; without some of its faults it is another that is run in the same way.
#ifndef DDPRUN_TESTS_SIM_SCENARIO_H_
#define DDPRUN_TESTS_SIM_SCENARIO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/agent/agent_core.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/types.h"
#include "tests/sim/timeline.h"

namespace ddprun::sim {

enum class FaultKind {
  kBreakStream,       // a node's stream ends at both ends; what is under way is lost
  kHalfBreak,         // it ends at the agent; the coordinator goes on hearing what is under way
  kCutNode,           // no message passes between a node and the others' hosts
  kCutUp,             // ...from the node
  kCutDown,           // ...to the node
  kCutCoordinator,    // no message passes to or from the coordinator's host
  kPauseAgent,        // SIGSTOP, then SIGCONT
  kKillAgent,         // SIGKILL; started again after `duration`, unless that is 0
  kSignalAgent,       // SIGTERM; a second one after `duration`, unless that is 0
  kPauseCoordinator,  // of one that runs apart
  kLagCoordinator,    // each thing that comes takes it `detail` milliseconds
  kKillCoordinator,   // likewise; started again after `duration`
  kLoseFile,          // likewise, and its file is lost
  kOrderStop,         // `ddprun stop` on a node; `detail` 1: after the step, 2: now
  kWorkerFails,       // a worker ends by itself
  kWorkerKilled,      // a worker is killed by a signal that somebody else sent
  // With etcd, where the coordinator's faults are those of the agent in which it lives:
  kSilentEtcd,   // none of it answers; `detail` 1: its leases then begin anew
  kSlowEtcd,     // it answers late
  kCutFromEtcd,  // no message passes between a node and etcd
  kRefuse,       // a node and the next one refuse each other's connections, as with one address
};
const char* FaultName(FaultKind kind);

struct Fault {
  TimePoint at;
  FaultKind kind = FaultKind::kBreakStream;
  int node = 0;
  Duration duration{0};
  // Of a worker: local rank * 256 + exit code or signal. Of a cut: where 1, from etcd as well.
  int detail = 0;
};
std::string Describe(const Fault& fault);

struct NodePlan {
  TimePoint start;
  int local_world_size = 1;
  SimClock clock;
  bool is_stubborn = false;  // its workers end only by SIGKILL
  Duration evict_after{0};   // by its own options; 0: as the job's
  int node_rank = -1;
  int bad_percent = 0;  // of its health checks: it flaps
};

struct Scenario {
  uint64_t seed = 0;
  rendezvous::Policy policy;
  launcher::AgentPolicy agent;
  bool is_apart = false;        // the coordinator runs apart; else node 0 hosts it, or:
  bool is_elected = false;      // it lives in the agent that etcd names
  bool is_one_host = false;     // all nodes are agents of one machine, the endpoint's
  bool has_next_job = false;    // a node on which the job succeeded starts the next one at once
  bool keeps_file = true;       // the coordinator's file survives it
  SimClock coordinator_clock;   // of one that runs apart
  std::vector<NodePlan> nodes;  // their starts
  // Every message takes between these, now and then as long as a spike.
  Duration min_delay{0};
  Duration max_delay{0};
  Duration spike{0};
  Duration names_take{0};  // a resolver's answer
  // What a round's workers do when nothing goes wrong, and by how much they end apart.
  Duration work{0};
  Duration skew{0};
  bool polls_stop = false;        // the workers look whether they are to save and end
  int follow_percent = 0;         // a worker fails because a peer ended, as a consequence...
  bool says_left_peer = false;    // ...and says so, or:
  bool follows_by_abort = false;  // ...by SIGABRT, while who failed takes up to 0.5 s to end
  Duration max_follow_delay{0};   // ...after at most so long
  std::vector<Fault> faults;      // in order of time
  TimePoint heal_at;              // from here on nothing goes wrong any more
  TimePoint end_by;               // by then all must have ended
};

// The name of the machine that a node's agent runs on.
std::string HostOf(const Scenario& scenario, int node);

// What the seed says. `node_count` 0: the seed says that, too. `is_elected`: of a job with etcd.
Scenario DrawScenario(uint64_t seed, int node_count, bool is_elected = false);
// Several lines: what is not a fault.
std::string Describe(const Scenario& scenario);

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SCENARIO_H_
