#include "worker_runtime/comm/shm/futex.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace ddp::internal {
namespace {

// Not FUTEX_PRIVATE: the word is shared between processes.
void FutexWake(Flag& flag) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&flag.value), FUTEX_WAKE, INT_MAX, nullptr,
          nullptr, 0);
}

}  // namespace

bool SharesCpu(const Flag& flag) {
  return flag.cpu.load(std::memory_order_relaxed) == sched_getcpu();
}

void Raise(Flag& flag, uint32_t target) {
  flag.cpu.store(sched_getcpu(), std::memory_order_relaxed);
  // Sequentially consistent on both sides: either we see the sleeper, or it sees our value.
  flag.value.exchange(target, std::memory_order_seq_cst);
  if (flag.sleepers.load(std::memory_order_seq_cst) != 0) FutexWake(flag);
}

void WakeAll(Flag& flag) { FutexWake(flag); }

void Sleep(Flag& flag, uint32_t target, std::chrono::nanoseconds at_most) {
  flag.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t seen = flag.value.load(std::memory_order_seq_cst);
  if (static_cast<int32_t>(seen - target) < 0) {
    timespec timeout;
    timeout.tv_sec = static_cast<time_t>(at_most.count() / 1'000'000'000);
    timeout.tv_nsec = static_cast<long>(at_most.count() % 1'000'000'000);
    // Every result - woken, EAGAIN, EINTR, ETIMEDOUT - means: look again.
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&flag.value), FUTEX_WAIT, seen, &timeout,
            nullptr, 0);
  }
  flag.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace ddp::internal
