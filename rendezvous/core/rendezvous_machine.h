// Decides who is in the job, with which rank, and how it ends. [pure]
//
// A coordinator's driver feeds it facts and carries out what it returns. It knows no clock, socket
// or thread, so that the simulator and the transcripts run the very object that serves a job.
// States: kOpen -> kSealed -> kDraining -> (kOpen, round + 1 | kClosed).
#ifndef DDPRUN_RENDEZVOUS_CORE_RENDEZVOUS_MACHINE_H_
#define DDPRUN_RENDEZVOUS_CORE_RENDEZVOUS_MACHINE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// How a coordinator that etcd elected came to its place.
struct Election {
  // Of the leader before, if its own machine said that nobody listens for it: its process is gone.
  Epoch gone_leader = {};
};

class RendezvousMachine {
 public:
  // Without a policy the first node that is admitted gives its own.
  // REQUIRES: 1 <= policy.min_nodes <= policy.max_nodes; the instance is known.
  RendezvousMachine(std::optional<Policy> policy, Beginning beginning, TimePoint now,
                    std::optional<Election> election = std::nullopt);
  ~RendezvousMachine();
  RendezvousMachine(const RendezvousMachine&) = delete;
  RendezvousMachine& operator=(const RendezvousMachine&) = delete;

  // Applies one event. Same history, same actions, same order.  REQUIRES: now never decreases.
  std::vector<Action> Step(TimePoint now, const Event& event);
  // What is heard now has waited for `lag` in this process. What others have said waits as well, so
  // a lag of a second, or of a quarter of evict_after, makes nobody lost by silence.
  // REQUIRES: as Step.
  void NoteLag(TimePoint now, Duration lag);
  // When Step(now, TimePassed{}) would next act.
  std::optional<TimePoint> NextDeadline() const;

  // What every message carries that names none of its own.
  Stamp current() const;
  // Null until a node gives it.
  const Policy* policy() const;
  // From one beat of a node to its next, as each is told with the answer to one.
  Duration beat_interval() const;
  // How the job ended, also where it was given up.
  const std::optional<Verdict>& verdict() const;
  bool is_finished() const;
  // Elected: why another agent should lead, as half a sentence; empty: none should. From then on it
  // evicts nobody.
  const std::string& resignation() const;
  // A node is in the job, or may come back to the round that is being taken over.
  bool has_nodes() const;
  // All nodes of the last round have said that they leave the job, and nobody else is in it.
  bool is_deserted() const;
  // What there is to say of it to people.
  JobFacts Facts(TimePoint now) const;
  // Every node of the job: where it can be asked now, if it can.
  struct Place {
    NodeId node;
    std::string host;                  // or its id, where no host is known
    std::optional<SessionId> session;  // empty: its session broke
  };
  std::vector<Place> Places() const;

 private:
  struct State;
  friend struct MachineInspector;  // for tests
  std::unique_ptr<State> state_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_RENDEZVOUS_MACHINE_H_
