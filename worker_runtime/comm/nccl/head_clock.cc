#include "worker_runtime/comm/nccl/head_clock.h"

#include <algorithm>
#include <utility>

namespace ddp::internal {

HeadClock::TimePoint HeadClock::See(uint64_t sequence, TimePoint called, TimePoint now) {
  const uint64_t before = std::exchange(sequence_, sequence);
  if (before == 0) {
    since_ = called;
  } else if (before != sequence) {
    since_ = now;
  }
  // Numbers of a discarded capture come again.
  since_ = std::max(since_, called);
  return since_;
}

}  // namespace ddp::internal
