// Hashes of tensors in a GPU's memory.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_HASHES_H_
#define DDPRUN_WORKER_RUNTIME_GPU_HASHES_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/checkpoint.h"
#include "ddp/gpu.h"
#include "worker_runtime/gpu/cuda_api.h"

namespace ddp::internal {

// Belongs to the context in which it was loaded, which is current at every call.
class Hashes {
 public:
  // Borrows `cuda`. Fails when the driver cannot compile or load the kernels.
  static absl::StatusOr<std::unique_ptr<Hashes>> Load(const CudaApi& cuda);

  // One number for each tensor, of its bits and their places, behind all that is on `stream`, which
  // it waits for: DeadlineExceeded after `timeout`. Equal bits have equal numbers on every GPU;
  // they are not those of the CPU. After an error a kernel may still run: what it uses is left to
  // the end of the process, and the next call has memory of its own.
  absl::StatusOr<std::vector<int64_t>> Of(std::span<const Tensor> tensors, CudaStream stream,
                                          std::chrono::milliseconds timeout);

 private:
  template <typename Bits>
  using HashKernel = Kernel<void(const Bits*, int64_t, uint64_t*)>;

  Hashes(const Gpu& gpu, OwnedModule module) : gpu_(gpu), module_(std::move(module)) {}
  absl::Status Add(const Tensor& tensor, uint64_t* hash, CudaStream stream) const;

  const Gpu gpu_;
  OwnedModule module_;
  // For the next call, too: the driver may wait for the whole device when it frees memory.
  DeviceMemory sums_;
  size_t sums_bytes_ = 0;
  HashKernel<uint8_t> bits_8_;
  HashKernel<uint16_t> bits_16_;
  HashKernel<uint32_t> bits_32_;
  HashKernel<uint64_t> bits_64_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_HASHES_H_
