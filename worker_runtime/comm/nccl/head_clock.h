// For how long the first of the operations under way has been the first. [pure]
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_HEAD_CLOCK_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_HEAD_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace ddp::internal {

// A program may run ahead of its GPU by more than a timeout, and all is well as long as one
// operation after another ends. So an operation's time begins when all before it are done, and not
// when it was called. The watchdog looks at its own pace: it sees a change late, never early.
class HeadClock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // Operation `sequence`, called at `called`, is the first now. Returns since when.
  TimePoint See(uint64_t sequence, TimePoint called, TimePoint now);
  // Nothing is under way.
  void SeeNothing() { sequence_ = 0; }

 private:
  uint64_t sequence_ = 0;  // 0: nothing was under way
  TimePoint since_{};
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_HEAD_CLOCK_H_
