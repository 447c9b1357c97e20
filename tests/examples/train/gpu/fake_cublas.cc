// A library with cuBLAS's names and nothing behind them, of version FAKE_MAJOR.4.2, for tests of
// the loader. A function that the build renames by -D is not there.
#include <cstdint>
#include <cstring>

#include "examples/train/gpu/cublas_functions.h"

namespace {

int Play(const char* function, intptr_t first, int* second) {
  if (std::strcmp(function, "cublasGetProperty") == 0) {
    const int version[] = {FAKE_MAJOR, 4, 2};
    *second = version[first & 3];
  }
  return 0;
}

}  // namespace

// The caller passes what the function has, which the callee need not know in C's calling
// convention.
#define FAKE(member, symbol) \
  extern "C" int symbol(intptr_t first, int* second) { return Play(#symbol, first, second); }
DDPRUN_CUBLAS_FUNCTIONS(FAKE)
