// Arithmetic on the values of gradients on the GPU.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_VALUES_H_
#define DDPRUN_WORKER_RUNTIME_GPU_VALUES_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/dtype.h"
#include "ddp/gpu.h"
#include "worker_runtime/gpu/cuda_api.h"
#include "worker_runtime/gpu/kernels/value_term.h"

namespace ddp::internal {

// Of floating-point types, in device memory. Belongs to the context in which it was loaded, which
// is current at every call.
class Values {
 public:
  // Borrows `cuda`. Fails when the driver cannot compile or load the kernels, or has no memory for
  // the sums (512 KiB).
  static absl::StatusOr<std::unique_ptr<Values>> Load(const CudaApi& cuda);

  // Queues values[i] *= factor, which is first rounded to float32 unless they are float64.
  absl::Status Scale(DType type, void* values, int64_t count, double factor,
                     CudaStream stream) const;

  // A sum over several arrays: Clear(), Add() for each, Total(), all on one stream. In double, and
  // the same for the same bits in the same arrays.
  absl::Status Clear(CudaStream stream) const;
  // `order` is that of ValueTerm::kPower. Queued.
  absl::Status Add(DType type, const void* values, int64_t count, ValueTerm term, double order,
                   CudaStream stream) const;
  // Waits for all that is on the stream: DeadlineExceeded after `timeout`.
  absl::StatusOr<double> Total(ValueTerm term, CudaStream stream,
                               std::chrono::milliseconds timeout) const;

 private:
  using ScaleKernel = Kernel<void(void*, int64_t, double)>;
  using AddKernel = Kernel<void(const void*, int64_t, int64_t, double, double*)>;
  static constexpr size_t kTypes = static_cast<size_t>(DType::kInt8) + 1;

  Values(const Gpu& gpu, OwnedModule module, DeviceMemory sums)
      : gpu_(gpu), module_(std::move(module)), sums_(std::move(sums)) {}
  double* sums() const { return static_cast<double*>(sums_.get()); }

  const Gpu gpu_;
  const OwnedModule module_;
  const DeviceMemory sums_;
  std::array<ScaleKernel, kTypes> scale_;  // by DType, those of floating-point types
  std::array<AddKernel, kTypes> add_;
  Kernel<void(double*, int64_t, int64_t)> fold_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_VALUES_H_
