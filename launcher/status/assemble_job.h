// One view of the job from what its nodes and the coordinator say, and what of it is shown to whom.
#ifndef DDPRUN_LAUNCHER_STATUS_ASSEMBLE_JOB_H_
#define DDPRUN_LAUNCHER_STATUS_ASSEMBLE_JOB_H_

#include "launcher/status/snapshot.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

// `job`, of this node, with what the others and the coordinator know.
JobView AssembleJob(JobView job, const rendezvous::GiveAnswers& answers, TimePoint now);

// The rank that failed first, of the round that ends, has ended, also where its node's last word
// was said before.
void EndFirstFailed(JobView& job);

// The body of the question that only members of the job ask: with what workers wrote.
inline constexpr char kPrivateQuestion[] = "status private";

// Takes away what strangers are not shown: what workers wrote and how they were called. How one
// failed stays, with the first line of its exception.
void HidePrivate(NodeView& node);
void HidePrivate(JobView& job);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_ASSEMBLE_JOB_H_
