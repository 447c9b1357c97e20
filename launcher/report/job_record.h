// What happened to this node in the job, from its first round to its end, as plain values. [pure]
//
// The agent feeds it what its core hears and does; the report file and the events are written from
// it. Bounded: of a job with very many rounds or failures the newest are kept, and the numbers.
#ifndef DDPRUN_LAUNCHER_REPORT_JOB_RECORD_H_
#define DDPRUN_LAUNCHER_REPORT_JOB_RECORD_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/agent_core.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

// Of one worker of this node in one round.
struct WorkerRecord {
  int local_rank = 0;
  int pid = 0;  // 0: it was not started
  bool has_ended = false;
  bool was_told_to_stop = false;
  int exit_code = 0;  // 128+n for signal n
  int signal = 0;
};

struct RoundRecord {
  rendezvous::Assignment assignment;
  std::vector<WorkerRecord> workers;  // by local rank
  int64_t started_unix_ms = 0;
  int64_t ended_unix_ms = 0;  // 0: its workers live
  std::string end_reason;     // why the coordinator ended it; "": it did not
};

struct FailureRecord {
  rendezvous::Assignment assignment;
  rendezvous::FailureReport report;
};

class JobRecord {
 public:
  static constexpr size_t kMaxRounds = 100;
  static constexpr size_t kMaxFailures = 64;  // each up to 100 KB of text

  JobRecord(int workers, int64_t started_unix_ms);

  void Heard(const AgentEvent& event, int64_t unix_ms);
  void Does(const AgentAction& action, int64_t unix_ms);
  void WorkerRuns(int local_rank, int pid);
  void WorkerIsGone(const WorkerEnd& end, bool was_told_to_stop);
  // All of the newest round that are known so far, the first one first, and how many more of it
  // are not described. Those told before of this round are forgotten.
  void SetFailures(const std::vector<rendezvous::FailureReport>& failures, uint64_t left_out = 0);

  int64_t started_unix_ms() const { return started_unix_ms_; }
  int64_t ended_unix_ms() const { return ended_unix_ms_; }
  const std::optional<rendezvous::Verdict>& verdict() const { return verdict_; }
  // How the agent ends; the values of a success before it does.
  const ExitAgent& end() const { return end_; }
  const std::deque<RoundRecord>& rounds() const { return rounds_; }
  uint64_t rounds_seen() const { return rounds_seen_; }
  const std::deque<FailureRecord>& failures() const { return failures_; }
  uint64_t failures_seen() const { return failures_seen_; }

 private:
  const int workers_;
  const int64_t started_unix_ms_;
  int64_t ended_unix_ms_ = 0;
  std::optional<rendezvous::Verdict> verdict_;
  ExitAgent end_;
  std::deque<RoundRecord> rounds_;
  uint64_t rounds_seen_ = 0;
  std::deque<FailureRecord> failures_;
  uint64_t failures_seen_ = 0;
  uint64_t round_failures_seen_ = 0;  // of the newest round
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_JOB_RECORD_H_
