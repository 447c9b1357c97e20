// Counts what libFuzzer feeds a target with, and says it at the end. fuzz.bzl puts it in between.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" int __real_LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int __wrap_LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static uint64_t fed = 0;
  [[maybe_unused]] static const int registered =
      std::atexit([] { std::fprintf(stderr, "fed: %llu bytes\n", (unsigned long long)fed); });
  fed += size;
  return __real_LLVMFuzzerTestOneInput(data, size);
}
