// What happened to this node in the job, from its first round to its end, as plain values: the one
// ledger from which the report, the report file and the events are written. [pure]
//
// The agent feeds it what its core hears and does, and what its dead workers left behind. Bounded:
// of a job with very many rounds or failures the newest are kept, and the numbers.
#ifndef DDPRUN_LAUNCHER_REPORT_JOB_RECORD_H_
#define DDPRUN_LAUNCHER_REPORT_JOB_RECORD_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/agent_core.h"
#include "launcher/cli/launch_config.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

// One worker of this node in one round.
struct WorkerRecord {
  int local_rank = 0;
  int pid = 0;                     // 0: it was not started
  std::string error_file{};        // where it may leave one; "": nowhere
  std::optional<WorkerEnd> end{};  // none: it lives, or was never started
  // How it failed, once that has been read: by itself, or as its error file says.
  std::optional<rendezvous::FailureReport> failure{};
  bool is_read = false;  // what it left behind, whether it failed or not
};

struct RoundRecord {
  rendezvous::Assignment assignment;
  std::vector<WorkerRecord> workers{};  // by local rank
  std::vector<int> ended{};             // local ranks, in the order of their ends
  int64_t started_unix_ms = 0;
  int64_t ended_unix_ms = 0;  // 0: its workers live
  std::string end_reason{};   // why the coordinator ended it; "": it did not

  // In the order of their ends.
  std::vector<rendezvous::FailureReport> Failures() const;
};

// A worker that has ended, and what it left behind.
struct LastWords {
  // How it ended, with its texts as soon as they have been read. Before that `error_file` is where
  // it may have left one.
  rendezvous::FailureReport report;
  // Whether it failed: was no consequence of our stop, or says so in its error file.
  bool is_failure = true;
  bool is_left_out = false;  // it may have failed, but what its file says is not kept: no room
  std::string warning{};     // of an error file that cannot be used; "": none
};

// How an end is called in what we write for programs.
struct Outcome {
  const char* name;          // "failed"
  const char* exit_code_of;  // whose the exit code is; null after a success
};
Outcome OutcomeOf(ExitOwner owner);

class JobRecord {
 public:
  static constexpr size_t kMaxRounds = 100;
  static constexpr size_t kMaxOldFailures = 64;  // of rounds before the newest
  // Tails and tracebacks are up to 100 KB each: of more failures of a round only the codes are
  // kept.
  static constexpr size_t kMaxTexts = 32;

  // Which part of which job it is of.
  struct Part {
    NodeId node;
    std::string host;
    std::string program{};  // as the user called it
    LaunchConfig config{};
  };
  JobRecord(Part part, int64_t started_unix_ms);

  void Note(const AgentEvent& event, int64_t unix_ms);
  void Note(const AgentAction& action, int64_t unix_ms);
  // What the core does not hear.
  void WorkerRuns(int local_rank, int pid, const std::string& error_file);

  // A worker of the newest round whose last words are wanted: as a failure, however it ended.
  LastWords Failed(const WorkerEnd& end) const;
  // All of the newest round that have ended without success and were not read yet. One that was
  // told to stop counts as failed only if it left an error file that says so: its exit status is
  // our doing.
  std::vector<LastWords> Unread() const;
  // Of how many more the texts are kept.
  size_t room_for_texts() const;
  // What has been read of one of them. Returns the report of what is a failure.
  std::optional<rendezvous::FailureReport> Add(const LastWords& words);

  const Part& part() const { return part_; }
  int64_t started_unix_ms() const { return started_unix_ms_; }
  int64_t ended_unix_ms() const { return ended_unix_ms_; }
  // The coordinator's, or this node's own where it ends without one.
  const std::optional<rendezvous::Verdict>& verdict() const { return verdict_; }
  // How the agent ends; the values of a success before it does.
  const EndJob& end() const { return end_; }
  // Of the last --health-check; kUnchecked: there was none.
  const rendezvous::HealthReport& health() const { return health_; }
  const std::deque<RoundRecord>& rounds() const { return rounds_; }
  uint64_t rounds_left_out() const { return rounds_seen_ - rounds_.size(); }
  // Of those that are not in rounds() any more, or were never described.
  uint64_t failures_left_out() const { return failures_left_out_; }

 private:
  void BeginRound(const rendezvous::Assignment& assignment, int64_t unix_ms);
  WorkerRecord* Find(int local_rank);

  const Part part_;
  const int64_t started_unix_ms_;
  int64_t ended_unix_ms_ = 0;
  std::optional<rendezvous::Verdict> verdict_;
  EndJob end_;
  rendezvous::HealthReport health_;
  std::deque<RoundRecord> rounds_;
  uint64_t rounds_seen_ = 0;
  uint64_t failures_left_out_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_JOB_RECORD_H_
