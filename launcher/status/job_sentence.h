// A job in one sentence, and the figures of all its ranks together. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_JOB_SENTENCE_H_
#define DDPRUN_LAUNCHER_STATUS_JOB_SENTENCE_H_

#include <string>

#include "launcher/status/rank_index.h"
#include "launcher/status/snapshot.h"

namespace ddprun::launcher {

// Fills in step, samples_per_s, step_s and exposed_share: of the ranks that run and are heard of,
// of all when none runs. What one of them does not tell is not known of the job.
void FillFigures(const RankIndex& ranks, JobView& job);

// "running: round 2, 4 of 4 nodes, 32 ranks, step 18,240, 412 samples/s, up 3 h 12 min, 1 restart
// (rank 3 killed by signal 9 (SIGKILL))". What is not known is left out. REQUIRES: FillFigures.
std::string SentenceOf(const RankIndex& ranks, const JobView& job);

// "1 of 2 nodes, waiting for 1 more, 25 s left": what the node waits for.
std::string WaitingWords(const NodeView& node);

// What the job waits for in its own words, or a node's, which is named where the others do not wait
// for the same. Empty: nothing.
std::string OwnWaitingText(const JobView& job);

// "killed by signal 9 (SIGKILL)", on one line and not too long.
std::string FaultText(const FaultView& fault);
// Of a hang that ddprun has ended a round for; its text is a sentence of its own.
bool IsHang(const FaultView& fault);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_JOB_SENTENCE_H_
