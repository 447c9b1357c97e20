// What this node tells of the job besides its log: the report for people at the end, the report
// file, the events, the error file for whoever started the agent.
//
// The agent's thread feeds it everything that its core hears and does. Files are read and written
// on two file threads, so that one which does not answer holds up neither the agent nor the others:
// what the workers left behind, and what is the agent's own.
#ifndef DDPRUN_LAUNCHER_REPORT_JOB_REPORTER_H_
#define DDPRUN_LAUNCHER_REPORT_JOB_REPORTER_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/agent/agent_core.h"
#include "launcher/agent/file_thread.h"
#include "launcher/report/job_json.h"
#include "launcher/report/job_record.h"
#include "launcher/report/last_words.h"
#include "launcher/report/whole_file.h"

namespace ddprun::launcher {

class LogRouter;

// The wall clock, for what is told to people and programs.
int64_t UnixTimeMs();

class JobReporter {
 public:
  struct Options {
    JobRecord::Part part;
    std::string own_error_file;  // the agent's TORCHELASTIC_ERROR_FILE; "": none
    // How a worker ended that a SIGKILL of somebody else's has killed, if that is known; called on
    // the thread of the workers' files.
    std::function<std::optional<std::string>(int pid)> explain_kill{};
    // What a disk may take that is only slow.
    Duration write_timeout = std::chrono::seconds(5);
    // For one failure's last words, because the other nodes wait for them, and for all of a round.
    Duration describe_timeout = std::chrono::seconds(2);
    Duration complete_timeout = std::chrono::seconds(4);
  };
  // All three are borrowed.
  JobReporter(Options options, LogRouter& logs, FileThread& workers_files, FileThread& own_files);

  // Before the agent's core hears of it, and before it is carried out.
  void Note(const AgentEvent& event);
  void Note(const AgentAction& action);
  // What the core does not hear.
  void WorkerRuns(int local_rank, int pid, const std::string& error_file);
  void TimerEvent(const TimerRequest& timer, bool is_kill);

  // A failure with all that its worker said, for the other nodes. Answers within seconds, not from
  // inside the call.
  void Describe(const WorkerEnd& end,
                std::function<void(const rendezvous::FailureReport& report)> answer);
  // Whether that worker says that it has lost a peer (ending_workers.h). As Describe; false where a
  // file system hangs.
  void AskForLostPeer(const WorkerEnd& end, std::function<void(bool tells)> answer);
  // The local ranks of the newest round that live and whose end is under way (ending_workers.h).
  // Answers within seconds, not from inside the call; without any where a file system hangs.
  void LookForEnding(std::function<void(std::set<int>)> answer);
  // Reads what the round's workers have left; `done` is called within seconds.  REQUIRES for
  // complete texts: none of them lives.
  void CompleteRound(std::function<void()> done);
  // The report for people, and the first failure's error file for whoever started the agent.
  void Print(const rendezvous::Verdict& verdict);
  // The job's last events, the termination message and the report file; `done` is called within
  // seconds, when those and the error file are written, or are not. After the core's EndJob.
  void WriteReport(std::function<void()> done);

 private:
  void Say(const std::string& text);
  void Ask(std::vector<LastWords> dead, Duration timeout,
           std::function<void(const std::vector<LastWords>& words)> answer);
  std::optional<rendezvous::FailureReport> Add(const LastWords& words);
  std::vector<rendezvous::FailureReport> NewestFailures() const;
  void PassOnErrorFile(const rendezvous::Verdict& verdict);
  void WriteFile(const std::string& path, std::string text, const std::string& what,
                 absl::Status (*write)(const std::string&, absl::string_view) = WriteWholeFile);
  void WriteTerminationMessage();
  void FinishWrite(const absl::Status& status, const std::string& what);
  double WaitedMs(int64_t now) const;

  const Options options_;
  LogRouter& logs_;
  FileThread& workers_files_;
  FileThread& own_files_;
  JobRecord record_;
  StatusEvents events_;
  int64_t asked_unix_ms_ = 0;  // for a place in the next round; 0: not yet
  int writes_ = 0;             // under way
  std::function<void()> on_written_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_JOB_REPORTER_H_
