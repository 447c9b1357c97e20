// A planted data race. tools/test runs it under the thread sanitizer, with the same options as
// every test, and fails unless it is reported.
#include <atomic>
#include <thread>

int shared_count = 0;
// The sanitizer misses two accesses of the very same moment: neither finds the other's record. So
// the second one waits for the first. A relaxed atomic orders them in time alone: it makes neither
// happen before the other, in C++ and for the sanitizer.
std::atomic<bool> has_counted{false};

int main() {
  std::thread other([] {
    while (!has_counted.load(std::memory_order_relaxed)) std::this_thread::yield();
    ++shared_count;
  });
  ++shared_count;
  has_counted.store(true, std::memory_order_relaxed);
  other.join();
  return 0;
}
