// A planted read behind a heap block. tools/test runs it under the address sanitizer, with the same
// options as every test, and fails unless it is reported.
#include <cstdlib>

int main(int argc, char**) {
  // volatile, so that only the run-time check can know how large the block is.
  int* volatile block = static_cast<int*>(std::calloc(4, sizeof(int)));
  if (block == nullptr) return 0;
  volatile int value = block[3 + argc];
  std::free(block);
  return value == 0 ? 0 : 0;
}
