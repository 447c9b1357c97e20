// Turns what the nodes of a job saw into a judgement: is it well, what does it wait for, who is to
// blame. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_JOB_JUDGE_H_
#define DDPRUN_LAUNCHER_STATUS_JOB_JUDGE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/status/hang_watch.h"
#include "launcher/status/judge_policy.h"
#include "launcher/status/progress_watch.h"
#include "launcher/status/rank_index.h"
#include "launcher/status/snapshot.h"
#include "launcher/status/straggler_watch.h"
#include "launcher/status/time_ledger.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// What is worth a line on the console, once, and what --on_hang acts upon.
struct JudgedNews {
  std::vector<std::string> lines;
  std::optional<HangFound> hang;
};

// Given a fresh view about once a second, or more rarely, by one driver for one job. It remembers
// what it has seen; a view alone is judged as far as one can be: nothing is stuck, slow or over.
// What no node tells is unknown, and a job is well as long as nothing is known to be wrong.
class JobJudge {
 public:
  explicit JobJudge(JudgePolicy policy = {});

  // Fills in what the view leaves to the judge.  REQUIRES: now never decreases.
  JudgedNews Look(TimePoint now, JobView& job);
  const TimeLedger& ledger() const { return ledger_; }

 private:
  void WatchRanks(TimePoint now, const RankIndex& ranks, JobView& job, JudgedNews& news);
  void Forget(JudgedNews& news);
  void AddLosses(TimePoint now, JobView& job);
  void AddSilentNodes(TimePoint now, JobView& job);
  void AddNodeProblems(TimePoint now, JobView& job, JudgedNews& news);

  const JudgePolicy policy_;
  HangWatch hangs_;
  ProgressWatch progress_;
  StragglerWatch stragglers_;
  TimeLedger ledger_;
  uint64_t round_ = 0;
  std::map<std::string, TimePoint> silent_since_;  // by name
  std::optional<TimePoint> looked_at_;
  std::optional<TimePoint> gone_since_, forming_since_;
  // When what has been said of a node was last so, by what it is.
  std::map<std::string, TimePoint> told_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_JOB_JUDGE_H_
