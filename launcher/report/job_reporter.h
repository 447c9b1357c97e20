// What this node tells of the job besides its log: the report for people at the end, the report
// file, the events, the error file for whoever started the agent.
//
// The agent's thread feeds it everything that its core hears and does.
#ifndef DDPRUN_LAUNCHER_REPORT_JOB_REPORTER_H_
#define DDPRUN_LAUNCHER_REPORT_JOB_REPORTER_H_

#include <string>

#include "absl/status/status.h"
#include "launcher/agent/agent_core.h"
#include "launcher/agent/file_helper.h"
#include "launcher/agent/timer_request.h"
#include "launcher/cli/launch_config.h"
#include "launcher/report/job_record.h"
#include "launcher/report/node_failures.h"
#include "launcher/report/status_events.h"

namespace ddprun::launcher {

class LogRouter;

class JobReporter {
 public:
  struct Options {
    LaunchConfig config;
    NodeId node;
    std::string host;
    std::string title;           // the program as the user called it
    std::string own_error_file;  // the agent's TORCHELASTIC_ERROR_FILE; "": none
  };
  // `logs` is borrowed.
  JobReporter(Options options, LogRouter& logs);

  // Before the agent's core hears of it, and before it is carried out.
  void Heard(const AgentEvent& event);
  void Does(const AgentAction& action);
  // What the core does not hear.
  void WorkerRuns(int local_rank, int pid);
  void WorkerIsGone(const WorkerEnd& end, bool was_told_to_stop);
  void SetErrorFile(int local_rank, const std::string& path);
  void TimerEvent(const TimerRequest& timer, bool is_kill);

  // A failure with all that its worker said, for the other nodes.
  rendezvous::FailureReport Describe(const WorkerEnd& end) { return failures_.Describe(end); }
  // Reads what the round's workers have left.  REQUIRES for complete texts: none of them lives.
  void CompleteRound();
  // The report for people, and the first failure's error file for whoever started the agent.
  void Print(const rendezvous::Verdict& verdict);
  // The job's last events and the report file. After the core's ExitAgent.
  void JobEnded();

 private:
  void Tell(const std::string& text);
  absl::Status WriteOwnErrorFile(const rendezvous::Verdict& verdict);
  double WaitedMs(int64_t now) const;
  absl::Status WriteInTime(const std::string& path, const std::string& text);

  const Options options_;
  LogRouter& logs_;
  NodeFailures failures_;
  JobRecord record_;
  StatusEvents events_;
  FileHelper files_;
  int64_t asked_unix_ms_ = 0;  // for a place in the next round; 0: not yet
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_JOB_REPORTER_H_
