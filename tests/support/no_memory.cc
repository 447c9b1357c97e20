#include "tests/support/no_memory.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> is_scarce{false};
enum class Thread { kNew, kOld, kStarved };
thread_local Thread thread = Thread::kNew;

}  // namespace

void* operator new(size_t size) {
  if (thread == Thread::kNew) thread = is_scarce ? Thread::kStarved : Thread::kOld;
  const bool is_refused = thread == Thread::kStarved && is_scarce;
  void* memory = is_refused ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace ddprun::testing {

NoMemoryOnNewThreads::NoMemoryOnNewThreads() {
  delete new char;  // the caller's thread is none of the new ones
  is_scarce = true;
}
NoMemoryOnNewThreads::~NoMemoryOnNewThreads() { is_scarce = false; }

}  // namespace ddprun::testing
