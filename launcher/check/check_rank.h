// One rank of `ddprun check`, a worker of a job of ddprun itself.
//
// It measures nothing and so does not fail: each stage is a process of its own, whose end, hang or
// error is a line in the job's store. The first rank leads: it collects the lines, says who pairs
// with whom, judges and prints. Where it gives no sign, the first rank of the next unit does.
#ifndef DDPRUN_LAUNCHER_CHECK_CHECK_RANK_H_
#define DDPRUN_LAUNCHER_CHECK_CHECK_RANK_H_

#include <string>
#include <vector>

namespace ddprun::launcher {

// `words`: the tolerance and "text" or "json"; or those of a stage. Returns the exit code: 1 on the
// rank that has judged that not all is well, which ends the job everywhere.
// REQUIRES: this process has one thread.
int RunCheckRank(const std::vector<std::string>& words);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CHECK_CHECK_RANK_H_
