// The CUDA driver's table over host memory, for tests of code that launches our own kernels. Every
// call is done when it returns; streams and events only exist. What order on streams means, the
// NCCL double tests.
#ifndef DDPRUN_TESTS_SUPPORT_EMULATED_CUDA_H_
#define DDPRUN_TESTS_SUPPORT_EMULATED_CUDA_H_

#include <map>
#include <string>

#include "tests/support/cuda_emulation.h"
#include "worker_runtime/gpu/cuda_api.h"

namespace ddprun::testing {

// One at a time: the table's functions have no other place to find it. Loads any PTX text and finds
// in it the kernels given, provided that the text has them with the same parameters.
class EmulatedCuda {
 public:
  explicit EmulatedCuda(EmulatedKernels kernels);
  // REQUIRES: everything made was freed.
  ~EmulatedCuda();
  EmulatedCuda(const EmulatedCuda&) = delete;
  EmulatedCuda& operator=(const EmulatedCuda&) = delete;

  const ddp::internal::CudaApi& api() const { return api_; }
  // Calls so far of a function of the table, or launches of a kernel.
  int Count(const std::string& name) const;
  // From now on the function, or launches of the kernel, fail with this; 0 mends it.
  void Fail(const std::string& name, ddp::internal::CudaResult result);

 private:
  friend struct EmulatedCudaFunctions;

  // Counts it; the result that it is to have.
  ddp::internal::CudaResult Call(const std::string& name);

  ddp::internal::CudaApi api_{};
  EmulatedKernels kernels_;
  std::string ptx_;
  std::map<std::string, int> counts_;
  std::map<std::string, ddp::internal::CudaResult> failures_;
  int live_ = 0;  // made and not freed
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_EMULATED_CUDA_H_
