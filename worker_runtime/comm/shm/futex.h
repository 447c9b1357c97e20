// Waiting on a word of memory that several processes share.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_SHM_FUTEX_H_
#define DDPRUN_WORKER_RUNTIME_COMM_SHM_FUTEX_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace ddp::internal {

// A number that one rank raises and the others wait for, on a cache line of its own. It wraps;
// values compared are never 2^31 apart.
struct alignas(64) Flag {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};
  std::atomic<int32_t> cpu{-1};  // where the rank last ran that raises it

  bool HasReached(uint32_t target) const {
    return static_cast<int32_t>(value.load(std::memory_order_acquire) - target) >= 0;
  }
};
static_assert(sizeof(Flag) == 64 && std::atomic<uint32_t>::is_always_lock_free);

// Whether the rank that raises `flag` last did so on the processor this thread runs on: it can only
// go on if this thread gives way.
bool SharesCpu(const Flag& flag);
// Makes everything written before visible to whoever sees `target`, and wakes the sleepers.
void Raise(Flag& flag, uint32_t target);
// Wakes the sleepers without a new value: they look for a failure.
void WakeAll(Flag& flag);
// Sleeps until woken, at most `at_most`; may return early. Returns at once if `target` is reached.
void Sleep(Flag& flag, uint32_t target, std::chrono::nanoseconds at_most);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_SHM_FUTEX_H_
