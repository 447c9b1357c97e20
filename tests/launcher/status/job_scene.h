// A job as its nodes see it, for tests of the judge: ranks on nodes, one group of all, and time
// that passes only when told to.
#ifndef DDPRUN_TESTS_LAUNCHER_STATUS_JOB_SCENE_H_
#define DDPRUN_TESTS_LAUNCHER_STATUS_JOB_SCENE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/status/job_judge.h"
#include "launcher/status/snapshot.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

inline constexpr uint64_t kWorldKey = 77;

// Ranks that train for an hour without a word of their own: all have ended operation 100 of a group
// of all, compute, and have been at it for a moment.
JobView RunningJob(int nodes, int ranks_per_node);

RankView& RankOf(JobView& job, int rank);
NodeView& NodeOf(JobView& job, int rank);
GroupView& WorldOf(JobView& job, int rank);

// Rank `rank` has called operation `number` of its group and waits for it for so long.
void LetWait(RankView& rank, uint64_t number, double waiting_s, size_t group = 0);
// All but `late` wait in operation 101; the late ones have ended 100 a second earlier.
void LetAllWaitFor(JobView& job, const std::vector<int>& late, double waiting_s);
// Every rank reports steps: the number, and how long ago.
void LetStep(JobView& job, int64_t step, double age_s);
// Adds a group of some ranks, in which all have ended operation 10, to them.
void AddGroup(JobView& job, uint64_t key, const std::string& name, const std::vector<int>& ranks);

TimePoint At(double seconds);

// A judge with a clock: looks at the scene twice, a second and a half apart, as nothing is called
// stuck by one look. The lines of both.
class Watch {
 public:
  explicit Watch(JudgePolicy policy = {}) : judge_(policy) {}

  JudgedNews Look(JobView& job, double after_s = 1);
  JudgedNews LookTwice(JobView& job);
  // What all looks so far have said.
  const std::vector<std::string>& lines() const { return lines_; }
  JobJudge& judge() { return judge_; }
  double now_s() const { return now_s_; }

 private:
  JobJudge judge_;
  double now_s_ = 1000;
  std::vector<std::string> lines_;
};

// Of that kind; one without a kind where there is none.
Problem ProblemOf(const JobView& job, const std::string& kind);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_LAUNCHER_STATUS_JOB_SCENE_H_
