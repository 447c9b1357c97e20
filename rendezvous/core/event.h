// Facts that the rendezvous machine is told. [pure]
#ifndef DDPRUN_RENDEZVOUS_CORE_EVENT_H_
#define DDPRUN_RENDEZVOUS_CORE_EVENT_H_

#include <optional>
#include <string>
#include <variant>

#include "rendezvous/base/ids.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// Every message of an agent carries the job's instance as far as the agent knows it, and the newest
// epoch and round of it that the agent has adopted.
struct Stamp {
  SessionId session;
  Epoch epoch;
  Round round;
  JobInstance instance;
};

// A node is here. With `held` it is re-attaching after a broken session: its workers of that
// assignment, whose epoch and round are the stamp's, live on. Without, no worker of an earlier
// round lives on the node.
struct NodeJoined {
  Stamp stamp;
  NodeInfo node;
  Policy policy;  // as this node was started
  std::optional<Assignment> held;
  std::string source_addr;    // address the session came from; empty: in this very process
  std::string accepted_addr;  // local address it was accepted on; empty likewise
};
struct HeartbeatReceived {
  Stamp stamp;
};
// The node goes, the job stays: leave is not close.
struct NodeLeft {
  Stamp stamp;
  std::string reason;
};
// `age` is the time from the worker's end to now as far as the driver can tell:
// the sender's age_us plus half the stream's round trip plus what it waited on its way.
struct WorkersFailed {
  Stamp stamp;
  FailureReport report;
  Duration age{0};
};
// The first worker of the node exited 0: from here on joins open no round.
struct FirstWorkerSucceeded {
  Stamp stamp;
  int rank = 0;     // of that worker
  Duration age{0};  // as in WorkersFailed
};
// All workers of the node exited 0.
struct WorkersSucceeded {
  Stamp stamp;
};
struct VerdictAcked {
  Stamp stamp;
};
// The stream ended: the node is suspect, not gone.
struct SessionBroken {
  SessionId session;
};
// The Record that carries the verdict is on disk, or no file is kept.
struct Recorded {};
struct TimePassed {};

using Event =
    std::variant<NodeJoined, HeartbeatReceived, NodeLeft, WorkersFailed, FirstWorkerSucceeded,
                 WorkersSucceeded, VerdictAcked, SessionBroken, Recorded, TimePassed>;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_EVENT_H_
