#include "worker_runtime/comm/kernels.h"

namespace ddp {

namespace internal {
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
  static const bool has_avx2 =
      __builtin_cpu_supports("avx2") > 0 && __builtin_cpu_supports("f16c") > 0;
  if (has_avx2) return kernels_avx2::kTable;
#endif
  return PortableKernels();
}

}  // namespace internal
}  // namespace ddp
