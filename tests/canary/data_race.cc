// A planted data race. tools/test runs it under the thread sanitizer, with the same options as
// every test, and fails unless it is reported.
#include <thread>

int shared_count = 0;

int main() {
  std::thread other([] { ++shared_count; });
  ++shared_count;
  other.join();
  return 0;
}
