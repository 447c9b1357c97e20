// A library with NCCL's names and nothing behind them, of the version FAKE_VERSION, for tests of
// the loader. A function that the build renames by -D is not there.
#include <cstring>

#include "worker_runtime/gpu/nccl_functions.h"

namespace {

int Play(const char* function, void* first) {
  if (std::strcmp(function, "ncclGetVersion") == 0) *static_cast<int*>(first) = FAKE_VERSION;
  return 0;
}

}  // namespace

// The caller passes more, which the callee need not know in C's calling convention.
#define FAKE(function, since) \
  extern "C" int function(void* first) { return Play(#function, first); }
DDPRUN_NCCL_FUNCTIONS(FAKE)
