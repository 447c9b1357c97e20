// What happens in a run, in order: told by the parts of the simulator, judged by the checker,
// hashed so that two runs can be compared, and printed on request.
#ifndef DDPRUN_TESTS_SIM_TRACE_H_
#define DDPRUN_TESTS_SIM_TRACE_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/agent/agent_core.h"
#include "rendezvous/client/rendezvous_client.h"
#include "rendezvous/core/rendezvous_machine.h"
#include "tests/sim/scenario.h"
#include "tests/sim/timeline.h"

namespace ddprun::sim {

// One agent process: the node it runs on, and which of that node's it is.
struct AgentKey {
  int node = 0;
  int life = 0;
  friend auto operator<=>(const AgentKey&, const AgentKey&) = default;
};
std::string NameOf(AgentKey key);  // "n2" and, from the second life on, "n2.1": also its NodeId
AgentKey KeyOf(const NodeId& id);

// One round of the job.
struct RoundKey {
  JobInstance instance;
  Epoch epoch;
  Round round;
  friend auto operator<=>(const RoundKey&, const RoundKey&) = default;
};
RoundKey KeyOf(const rendezvous::Assignment& assignment);

// Why a worker ended.
enum class EndCause {
  kSuccess,
  kScaleUp,    // with 0, as it was asked to, so that nodes that have come get their places
  kOwn,        // it failed by itself, or somebody outside the job killed it
  kFollowing,  // it failed because a peer had ended
  kStopped,    // its agent stopped it, or died
};

class Checker;

class Trace {
 public:
  Trace(const Scenario& scenario, const Timeline& timeline, Checker& checker, bool is_loud)
      : scenario_(scenario), timeline_(timeline), checker_(checker), is_loud_(is_loud) {}

  void Faulted(const Fault& fault);
  void CoordinatorStarted(int life, int host, Epoch epoch, bool has_memory);
  void CoordinatorStepped(int life, TimePoint local, const rendezvous::RendezvousMachine& machine,
                          const rendezvous::Event& event,
                          const std::vector<rendezvous::Action>& actions);
  void VerdictDurable(int life);
  // With etcd: what a coordinator writes there stands.
  void RecordKept(int life, const rendezvous::Record& record);
  // `is_stolen`: of a leader that may speak.
  void PlaceTaken(int life, AgentKey by, bool has_record, bool is_stolen);
  void AgentStarted(AgentKey key);
  void AgentKilled(AgentKey key);
  void AgentHeard(AgentKey key, const rendezvous::RendezvousEvent& event);
  void AgentDid(AgentKey key, const launcher::AgentAction& action);
  void WorkerStarted(AgentKey key, const rendezvous::Assignment& assignment, int local_rank);
  void WorkerEnded(AgentKey key, RoundKey round, int rank, int exit_code, EndCause cause);

  void Broken(const std::string& what);
  // Who is to be called with all that agents hear.
  void set_heard(std::function<void(const rendezvous::RendezvousEvent&)> heard) {
    heard_ = std::move(heard);
  }

  uint64_t hash() const { return hash_; }

 private:
  void Hash(uint64_t value);
  void Print(const std::string& line) const;

  const Scenario& scenario_;
  const Timeline& timeline_;
  Checker& checker_;
  const bool is_loud_;
  std::function<void(const rendezvous::RendezvousEvent&)> heard_;
  uint64_t hash_ = 0xcbf29ce484222325ULL;
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_TRACE_H_
