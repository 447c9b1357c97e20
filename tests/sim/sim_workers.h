// The workers of one agent: processes that work, fail, follow their peers into failure, and ignore
// SIGTERM for as long as they can.
#ifndef DDPRUN_TESTS_SIM_SIM_WORKERS_H_
#define DDPRUN_TESTS_SIM_SIM_WORKERS_H_

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "tests/sim/scenario.h"
#include "tests/sim/sim_random.h"
#include "tests/sim/trace.h"

namespace ddprun::sim {

class SimWorkers;

// Which workers belong together: those of one round, on all nodes.
class RoundBook {
 public:
  RoundBook(const Scenario& scenario, Timeline& timeline)
      : scenario_(scenario), timeline_(timeline) {}
  // The workers of a node start in the round. Returns when a round that nothing disturbs is done.
  TimePoint Join(RoundKey round, SimWorkers& workers);
  // A worker ended before its work was done: its peers may follow.
  void PeerEnded(RoundKey round, int rank);
  // A node's workers are asked to stop. All ranks find it at the same step, unless one has ended.
  void AskToStop(RoundKey round, Duration step);
  bool has_stopped(RoundKey round) { return rounds_[round].has_stopped; }
  void NoteEnd(RoundKey round) { rounds_[round].has_end = true; }

 private:
  struct Entry {
    TimePoint done_at;
    std::vector<SimWorkers*> nodes;
    bool is_asked = false;
    bool has_stopped = false;
    bool has_end = false;  // of a worker
  };
  const Scenario& scenario_;
  Timeline& timeline_;
  std::map<RoundKey, Entry> rounds_;
};

class SimWorkers {
 public:
  // What the agent notices, after the fact.
  struct Handler {
    std::function<void(launcher::WorkerEnd end, std::optional<int> left_peer)> ended;
    std::function<void()> gone;
  };
  SimWorkers(const Scenario& scenario, Timeline& timeline, Trace& trace, RoundBook& book,
             AgentKey key, Handler handler);

  void Start(const rendezvous::Assignment& assignment);
  // `signal`, and SIGKILL after `grace`.
  void Stop(int signal, Duration grace);
  void KillNow();
  // Local ranks that have failed and have not ended.
  std::set<int> ending() const;
  void AskToStop();
  // Their step is over, and they have been asked to.
  void SaveAndEnd(RoundKey round);
  bool has_read_stop() const { return has_read_stop_; }
  // The guardian kills them.
  void AgentDied();
  // The worker fails by itself with `exit_code`, or by a `signal` that is not 0; nothing if it does
  // not live.
  void Fail(int local_rank, int exit_code, int signal);
  // All that live follow `peer`, each after its own time.
  void Follow(RoundKey round, int peer);
  bool has_living() const { return living_ > 0; }

 private:
  struct Worker {
    bool is_alive = false;
    bool was_stopped = false;
    bool is_ending = false;  // it has failed, and takes its time to end
    int pid = 0;
  };
  void End(size_t local_rank, int exit_code, int signal, EndCause cause, std::optional<int> peer);
  void EndAll(int signal);
  // Runs `what` later unless the worker has ended by then.
  void Later(size_t local_rank, Duration delay, std::function<void()> what);

  const Scenario& scenario_;
  Timeline& timeline_;
  Trace& trace_;
  RoundBook& book_;
  const AgentKey key_;
  const Handler handler_;
  Random random_;
  rendezvous::Assignment assignment_;
  std::vector<Worker> workers_;
  int living_ = 0;
  bool has_read_stop_ = false;  // in this round
  int pids_ = 0;
  TimePoint noticed_at_;  // the agent notices ends in their order
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SIM_WORKERS_H_
