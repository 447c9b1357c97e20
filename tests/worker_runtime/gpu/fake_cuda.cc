// A library with the driver's names and nothing behind them, for tests of the loader: serves CUDA
// 12.4, or is a toolkit's stub where FAKE_STUB is defined. A function that the build renames by -D
// is not there.
#include <cstring>

#include "worker_runtime/gpu/cuda_functions.h"

namespace {

#ifdef FAKE_STUB
constexpr int kVersionResult = 34;
#else
constexpr int kVersionResult = 0;
#endif

int Play(const char* function, void* first, void* second) {
  if (std::strcmp(function, "cuDriverGetVersion") == 0) {
    *static_cast<int*>(first) = 12040;
    return kVersionResult;
  }
  if (std::strcmp(function, "cuGetErrorName") == 0) {
    *static_cast<const char**>(second) = "CUDA_ERROR_STUB_LIBRARY";
  }
  if (std::strcmp(function, "cuGetErrorString") == 0) {
    *static_cast<const char**>(second) = "CUDA driver is a stub library";
  }
  return 0;
}

}  // namespace

// The caller passes what the function has, which the callee need not know in C's calling
// convention.
#define FAKE(member, symbol, since) \
  extern "C" int symbol(void* first, void* second) { return Play(#member, first, second); }
DDPRUN_CUDA_FUNCTIONS(FAKE)
