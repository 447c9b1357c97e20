// Which events --event_file gets: from what the agent's core hears and does, and what it does not.
// [pure]
//
// The agent's thread feeds it as it feeds JobReporter: each event before the core hears it, each
// action before it is carried out. `emit` gets each event from inside the calls; EventLine and an
// EventFile make a line of it.
#ifndef DDPRUN_LAUNCHER_REPORT_EVENT_LOG_H_
#define DDPRUN_LAUNCHER_REPORT_EVENT_LOG_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/agent_core.h"
#include "launcher/report/job_event.h"
#include "launcher/report/job_record.h"
#include "launcher/status/snapshot.h"

namespace ddprun::launcher {

class EventLog {
 public:
  using Emit = std::function<void(const EventHead& head, const JobEvent& event)>;

  EventLog(JobRecord::Part part, Emit emit);

  // The times are the wall clock's.
  void Note(const AgentEvent& event, int64_t unix_ms);
  void Note(const AgentAction& action, int64_t unix_ms);

  // What the core does not hear.
  //
  // A worker of the round has been started; with the last of them `workers_started` is told.
  void NoteWorkerRuns(int64_t unix_ms);
  // The first step of the round has ended on this node, so long ago. Told once in a round.
  void NoteFirstStep(int64_t unix_ms, double ago_s);
  // All that is wrong now, each time that it is judged: what is new is told, and what is over. A
  // problem stays the same one while its kind and its node do.
  void NoteProblems(const std::vector<Problem>& problems, int64_t unix_ms);
  // For job_end.
  void NoteEffectiveShare(double share) { effective_share_ = share; }

 private:
  struct Known {
    Problem problem;
    int64_t began_unix_ms = 0;
  };
  // Of the newest round; what ends with it.
  struct RoundState {
    rendezvous::Assignment assignment{};
    int64_t started_unix_ms = 0;
    int workers_running = 0;
    bool is_over = false;
    bool has_told_first_step = false;
    std::string drain_reason{};    // the coordinator's word
    std::string failure_reason{};  // of the first worker of this node that failed
    int succeeded = 0, failed = 0, stopped = 0;
  };

  void Count(const WorkerEnd& end);
  // The rest of Note, of what asks the job to stop.
  void NoteStop(const AgentEvent& event, int64_t unix_ms);
  void Wait(const std::string& reason, int64_t unix_ms);
  void AskToStop(StopAskedEvent::How how, const std::string& why, int64_t unix_ms);
  void Conclude(const rendezvous::Verdict& verdict, int64_t unix_ms);
  void StartRound(const rendezvous::Assignment& assignment, int64_t unix_ms);
  void EndRound(int64_t unix_ms);
  void End(const EndJob& end, int64_t unix_ms);
  std::string WhyRoundEnded() const;
  void Write(const JobEvent& event, int64_t unix_ms);

  const JobRecord::Part part_;
  const Emit emit_;
  uint64_t number_ = 0;
  int64_t started_unix_ms_ = 0;
  int64_t asked_unix_ms_ = 0;        // for a place in the next round; 0: not since the last
  std::string waiting_reason_;       // told last; "": none in this wait
  rendezvous::HealthReport health_;  // told last
  std::optional<RoundState> round_;
  StopAskedEvent stop_;     // told last; why "": none
  std::string end_reason_;  // of the job, as far as it is known; "": it goes on
  std::vector<Known> known_;
  std::optional<double> effective_share_;
  bool has_ended_ = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_EVENT_LOG_H_
