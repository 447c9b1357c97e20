// How a thread waits for a call that NCCL is about to take.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_FOLLOW_PACE_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_FOLLOW_PACE_H_

#include "worker_runtime/comm/op.h"

namespace ddp::internal {

// One wait. NCCL puts a non-blocking call on the stream from a thread that it starts for the call:
// tens of microseconds. A sleep of 20 us takes some 75 on Linux (the timer's slack), a look too
// many each time, which for small messages is longer than the reduction. So the first looks are a
// microsecond apart, without giving the core away; the next give it to whoever wants it, since
// with fewer cores than threads that is NCCL's thread; and what takes longer than 200 us connects
// or hangs, and is looked at now and then. Nothing here ends the wait: its caller has the deadline.
class FollowPace {
 public:
  FollowPace() : begin_(Clock::now()) {}
  // Between two looks.
  void Pause() const;
  Clock::duration spent() const { return Clock::now() - begin_; }

 private:
  const Clock::time_point begin_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_FOLLOW_PACE_H_
