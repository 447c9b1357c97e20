// What an agent knows of the rendezvous: commands down, events up.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_RENDEZVOUS_CLIENT_H_
#define DDPRUN_RENDEZVOUS_CLIENT_RENDEZVOUS_CLIENT_H_

#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "rendezvous/base/ids.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// What the agent waits for, as the beginning of a sentence: the coordinator's own words ("1 of 2
// nodes, waiting for 1 more") or, before it is reached, the client's ("waiting for the coordinator
// at 10.0.0.1:29400 (last try: Connection refused)"). Given when it changes, or the deadline does,
// and again by a coordinator that has been reached anew. Right in front of the assignment of a
// round that is smaller than the one before: why it is.
struct Waiting {
  std::string reason;
  std::optional<TimePoint> deadline = {};  // when the wait is given up, if it is
};
struct Assigned {
  Assignment assignment;
};
// Stop the workers of `round`, then Join again or hear the verdict. It may come when both is done
// already: an agent whose workers failed stops them by itself.
struct Drained {
  Round round;
  std::string reason;
  bool is_cause_wanted = false;  // an end that is under way here is waited for: Drain of types.h
};
struct Concluded {
  Verdict verdict;
};
// The coordinator is known: it has answered for the first time, or from now on this process hosts
// it. Given again where another one, elsewhere, is found in its place.
struct ContactMade {
  std::string place;  // "node1:29400 (10.0.0.1)"; empty: there is no port
  bool is_hosted_here = false;
};
// The link broke; the client goes on trying by itself. `is_gone`: the coordinator's process is gone
// by proof: nobody listens there, or another job or program answers on its port. `is_lasting`:
// another one answers there, or a certificate has expired, and waiting alone does not help.
// `unanswered_for`: the evict time, where its machine has answered neither data nor connections for
// so long; else zero.
// Given again when any of it changes.
struct ContactLost {
  std::string reason;
  bool is_gone = false;
  bool is_lasting = false;
  Duration unanswered_for{0};
};
struct ContactRestored {};
// The rendezvous is over for this agent: refused, timed out, unresolvable. Nothing but ContactEnded
// follows.
struct RendezvousFailed {
  enum class Kind {
    kRendezvous,
    kLocal,       // this machine lacks something for it: a thread, a descriptor
    kDistrusted,  // this node and the coordinator do not know each other for one job's
    kBadNode,     // by its health check, or because its workers have failed first too often
  };
  std::string message;
  Kind kind = Kind::kRendezvous;
};
// A question of another node, or of somebody who looks on: Answer it, soon.
struct Asked {
  uint64_t id = 0;
  std::string body;
};
// A part of what the nodes have answered to a question of ours.
struct Answered {
  GiveAnswers part;
};
// The workers are to save and end after their step: the user wants it, on this node or on another.
// Or those of the round alone, so that the next one has more nodes.
struct StopRequested {
  std::string reason;
  bool is_to_scale_up = false;
};
// The answer to EndContact; nothing follows.
struct ContactEnded {};

using RendezvousEvent =
    std::variant<Waiting, Assigned, Drained, Concluded, ContactMade, ContactLost, ContactRestored,
                 RendezvousFailed, Asked, Answered, StopRequested, ContactEnded>;

// One agent's way to its coordinator. Commands are given from the agent's thread only and return at
// once. Events come, in order, on a thread of the client's choice: the handler only posts. After
// the destructor, which ends what is left at once, no event comes.
class RendezvousClient {
 public:
  using EventHandler = std::function<void(RendezvousEvent)>;

  virtual ~RendezvousClient() = default;

  // Asks for a place in the next round. REQUIRES: no worker of an earlier round lives here.
  // `node.store_port` is the fresh store's. May be called again for every round.
  virtual void Join(const NodeInfo& node) = 0;
  // A worker of `round` failed `at` (this machine's monotonic clock).
  virtual void ReportFailed(Round round, const FailureReport& report, TimePoint at) = 0;
  // The first worker of `round` on this node that exited 0 was `rank`, `at` this machine's
  // monotonic clock.
  virtual void ReportFirstSuccess(Round round, int rank, TimePoint at) = 0;
  virtual void ReportSucceeded(Round round, StopRead stop_read) = 0;
  // This node goes, as it was told to by a signal or for a reason of its own; the job stays. Sent
  // best effort.
  virtual void Leave(const std::string& reason, bool is_by_signal) = 0;
  // The verdict has been adopted.
  virtual void AckVerdict() = 0;
  // Asks the nodes of the job, this one among them; Answered follows while there is contact, else
  // nothing does. Nor is anything said that is longer than it may be, or comes too fast.
  virtual void Ask(const Question& question) = 0;
  virtual void Answer(uint64_t id, const std::string& body) = 0;
  // The user wants the job to end: Concluded follows on all nodes, or StopRequested.
  virtual void OrderStop(StopHow how, const std::string& reason) = 0;
  // What a later check has found of this node, which has joined and waits for a place.
  virtual void ReportHealth(const HealthReport& report) = 0;
  // The agent's thread runs. Once it has said so it says it each kLifeInterval: else the node's
  // beats tell the coordinator that it does not work, and the job goes on without it.
  virtual void ShowLife() = 0;
  static constexpr Duration kLifeInterval = std::chrono::seconds(1);
  // The last command: ends all contact once what was said has been taken, at the latest after
  // `timeout`; ContactEnded follows. Where this agent hosts the coordinator and has acknowledged
  // the verdict, it also waits, within `timeout`, until the others have.
  virtual void EndContact(Duration timeout) = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_RENDEZVOUS_CLIENT_H_
