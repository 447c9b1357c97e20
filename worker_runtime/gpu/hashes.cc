#include "worker_runtime/gpu/hashes.h"

#include <algorithm>

#include "worker_runtime/gpu/hash_ptx.h"

namespace ddp::internal {
namespace {

// Each thread ends in one addition to the same number: few blocks, which the memory keeps busy.
LaunchShape ShapeForHash(int64_t count) {
  constexpr unsigned kMostBlocks = 256;
  LaunchShape shape = ShapeFor(count);
  shape.blocks = std::min(shape.blocks, kMostBlocks);
  return shape;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Hashes>> Hashes::Load(const CudaApi& cuda) {
  absl::StatusOr<OwnedModule> module = LoadPtx(cuda, "hash.cu", kHashPtx);
  if (!module.ok()) return module.status();
  auto hashes = std::unique_ptr<Hashes>(new Hashes(cuda, *std::move(module)));
  CudaModule loaded = hashes->module_.get();
  absl::Status status = FindKernel(cuda, loaded, "hash_8_bits", &hashes->bits_8_);
  status.Update(FindKernel(cuda, loaded, "hash_16_bits", &hashes->bits_16_));
  status.Update(FindKernel(cuda, loaded, "hash_32_bits", &hashes->bits_32_));
  status.Update(FindKernel(cuda, loaded, "hash_64_bits", &hashes->bits_64_));
  if (!status.ok()) return status;
  return hashes;
}

absl::StatusOr<std::vector<int64_t>> Hashes::Of(std::span<const Tensor> tensors,
                                                CudaStream stream) {
  std::vector<int64_t> hashes(tensors.size());
  if (hashes.empty()) return hashes;
  const size_t bytes = hashes.size() * sizeof(int64_t);
  absl::StatusOr<DeviceMemory> sums = AllocateDevice(cuda_, "hash parameters", bytes);
  if (!sums.ok()) return sums.status();
  const CudaPointer address = AddressOf(sums->get());
  absl::Status status = CudaStatus(cuda_, "hash parameters: cuMemsetD8Async",
                                   cuda_.cuMemsetD8Async(address, 0, bytes, stream));
  for (size_t i = 0; status.ok() && i < tensors.size(); ++i) {
    status = Add(tensors[i], static_cast<uint64_t*>(sums->get()) + i, stream);
  }
  if (!status.ok()) return status;
  status = CudaStatus(cuda_, "hash parameters: cuMemcpyDtoHAsync",
                      cuda_.cuMemcpyDtoHAsync(hashes.data(), address, bytes, stream));
  if (!status.ok()) return status;
  status =
      CudaStatus(cuda_, "hash parameters: cuStreamSynchronize", cuda_.cuStreamSynchronize(stream));
  if (!status.ok()) return status;
  return hashes;
}

absl::Status Hashes::Add(const Tensor& tensor, uint64_t* hash, CudaStream stream) const {
  const int64_t count = static_cast<int64_t>(tensor.count);
  if (count == 0) return absl::OkStatus();
  const LaunchShape shape = ShapeForHash(count);
  const auto launch = [&]<typename Bits>(const HashKernel<Bits>& kernel) {
    return kernel.Launch(cuda_, stream, shape, static_cast<const Bits*>(tensor.data), count, hash);
  };
  switch (SizeOf(tensor.dtype)) {
    case 1:
      return launch(bits_8_);
    case 2:
      return launch(bits_16_);
    case 4:
      return launch(bits_32_);
    default:
      return launch(bits_64_);
  }
}

}  // namespace ddp::internal
