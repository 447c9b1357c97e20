// What this node's agent has lived through, as status shows it: its state, its workers, where the
// time of each round's beginning went, the first fault. [pure]
//
// The agent feeds it everything that its core hears and does, as it feeds the reporter. Bounded: of
// many rounds the newest are kept.
#ifndef DDPRUN_LAUNCHER_STATUS_NODE_RECORD_H_
#define DDPRUN_LAUNCHER_STATUS_NODE_RECORD_H_

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "launcher/agent/agent_core.h"
#include "launcher/status/snapshot.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

class NodeRecord {
 public:
  static constexpr size_t kMaxRounds = 20;

  struct Part {
    std::string node_id;
    std::string host;
    std::string run_id;
    std::string program;  // as the user called it
    int min_nodes = 1, max_nodes = 1, max_restarts = 0;
    Duration keep_children{0};  // what a worker leaves may go on for so long after its success
  };
  NodeRecord(Part part, TimePoint began_at) : part_(std::move(part)), began_at_(began_at) {}

  // Before the core hears of it, and before it is carried out.
  void Note(TimePoint now, const AgentEvent& event);
  void Note(TimePoint now, const AgentAction& action);
  // What the core does not hear.
  void WorkerRuns(TimePoint now, int local_rank, int pid);

  struct Worker {
    int pid = 0;
    TimePoint started_at{};
    std::optional<TimePoint> ended_at{};
    std::string end{};
  };
  const std::string& node_id() const { return part_.node_id; }
  const std::map<int, Worker>& workers() const { return workers_; }  // by local rank
  const rendezvous::Assignment& assignment() const { return assignment_; }
  const std::string& state() const { return state_; }
  bool has_verdict() const { return has_verdict_; }
  bool has_rank_0() const { return assignment_.round.value != 0 && assignment_.first_rank == 0; }

  // All but what the workers say and the kernel tells of them. `show_private`: the program's name
  // and what it wrote, too.
  void Fill(TimePoint now, NodeView& view) const;
  void Fill(TimePoint now, bool show_private, JobView& view) const;

 private:
  struct Round {
    uint64_t number = 0;
    std::string reason{};
    TimePoint assigned_at{};
    std::optional<double> detect_s{}, stop_s{}, rendezvous_s{}, exec_s{};
  };
  void NoteEvent(const rendezvous::Waiting& event);
  void NoteEvent(const rendezvous::Assigned& event);
  void NoteEvent(const rendezvous::Drained& event);
  void NoteEvent(const rendezvous::Concluded& event);
  void NoteEvent(const rendezvous::ContactMade& event);
  void NoteEvent(const rendezvous::ContactLost& event);
  void NoteEvent(const rendezvous::ContactRestored& event);
  void NoteEvent(const WorkerEnd& end);
  void NoteEvent(const FailureDescribed& event);
  void NoteEvent(const HangJudged& event);
  void NoteEvent(const HealthFound& event) { health_ = event.report; }
  void NoteEvent(const WorkersGone& event);
  void NoteEvent(const auto&) {}
  void NoteAction(const JoinRound&);
  void NoteAction(const PrepareWorkers& action);
  void NoteAction(const StartWorkers&);
  void NoteAction(const StopWorkers&);
  void NoteAction(const AskToStop& action);
  void NoteAction(const ReportSuccess&) { state_ = "succeeded"; }
  void NoteAction(const EndJob&) {
    state_ = "leaving";
    EndWait();
  }
  void NoteAction(const auto&) {}
  void NoteFault(const rendezvous::FailureReport& report, uint64_t round);
  void WaitForWhatIsLeft();
  void EndWait();
  std::string WaitingFor() const;

  const Part part_;
  const TimePoint began_at_;
  TimePoint now_{};
  std::string state_ = "joining";
  bool hosts_coordinator_ = false, has_verdict_ = false;
  std::string waiting_for_;
  std::optional<TimePoint> waiting_until_;
  std::string coordinator_place_, contact_lost_;
  std::string gone_node_;
  rendezvous::HealthReport health_;
  std::string gone_nodes_;         // that end the job, by its verdict; empty: none do
  std::string stop_asked_;         // that its ranks are to end; empty: nobody has asked for it
  bool is_stop_of_round_ = false;  // ...those of this round alone
  rendezvous::Assignment assignment_;
  std::map<int, Worker> workers_;
  std::deque<Round> rounds_;

  // On the way to the next round.
  std::string reason_;
  std::optional<TimePoint> failed_at_, stopping_at_, joined_at_;
  std::optional<double> detect_s_, stop_s_;
  struct Fault {
    FaultView view;
    TimePoint at;
  };
  std::optional<Fault> fault_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_NODE_RECORD_H_
