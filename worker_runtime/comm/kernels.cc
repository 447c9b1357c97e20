#include "worker_runtime/comm/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ddp {

namespace internal {
#if defined(__x86_64__)
namespace {

// Clang's __builtin_cpu_supports() does not know it.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace
#endif

namespace kernels_portable {
extern const Kernels kTable;
}
namespace kernels_avx2 {
extern const Kernels kTable;
}

size_t AccumulatorSize(DType dtype) {
  const size_t size = SizeOf(dtype);
  return size < 4 ? 4 : size;  // 16-bit floats are combined in float32, bytes in uint32
}

const Kernels& PortableKernels() { return kernels_portable::kTable; }

const Kernels& BestKernels() {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") > 0 && HasF16c();
  if (has_avx2) return kernels_avx2::kTable;
#endif
  return PortableKernels();
}

}  // namespace internal
}  // namespace ddp
