#include "worker_runtime/comm/nccl/follow_pace.h"

#include <chrono>
#include <thread>

namespace ddp::internal {
namespace {

constexpr std::chrono::microseconds kSpin(20);
constexpr std::chrono::microseconds kYield(200);
constexpr std::chrono::microseconds kSleep(20);

// About a microsecond in which a sibling on the same core has it for itself.
void Relax() {
  for (int i = 0; i < 16; ++i) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
  }
}

}  // namespace

void FollowPace::Pause() const {
  const Clock::duration so_far = spent();
  if (so_far < kSpin) {
    Relax();
  } else if (so_far < kYield) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(kSleep);
  }
}

}  // namespace ddp::internal
