// NVML's names with one GPU behind them, for tests: samples of 0, 100 and 50 percent, one second
// apart, the first in second 1000.
#include <cstring>

#include "worker_runtime/gpu/gpu_utilisation.h"

using ddp::internal::NvmlSample;

extern "C" int nvmlInit_v2() { return 0; }

extern "C" int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  constexpr int kNotFound = 6;
  static int gpu;
  *device = &gpu;
  return std::strcmp(uuid, "GPU-fake") == 0 ? 0 : kNotFound;
}

#ifndef FAKE_WITHOUT_SAMPLES
// As the driver's: a question for the number first, then all that fits, old ones included.
extern "C" int nvmlDeviceGetSamples(void*, int kind, unsigned long long last_seen, int* value_type,
                                    unsigned* count, NvmlSample* samples) {
  constexpr int kInvalidArgument = 2, kNotFound = 6;
  constexpr unsigned kPercent[] = {0, 100, 50};
  if (kind != 1) return kInvalidArgument;
  if (last_seen >= 1'003'000'000) return kNotFound;
  *value_type = 1;
  if (samples == nullptr) {
    *count = 100;
    return 0;
  }
  for (unsigned i = 0; i < 3; ++i) {
    samples[i].microseconds = 1'000'000'000 + 1'000'000ull * i;
    samples[i].value.as_wide = 0xffffffff00000000ull;  // the union's other half is anything
    samples[i].value.as_unsigned = kPercent[i];
  }
  *count = 3;
  return 0;
}
#endif
