#include "worker_runtime/gpu/hashes.h"

#include <algorithm>

#include "worker_runtime/gpu/await_stream.h"
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
  const Gpu gpu(cuda);
  absl::StatusOr<OwnedModule> module = gpu.LoadPtx("hash.cu", kHashPtx);
  if (!module.ok()) return module.status();
  auto hashes = std::unique_ptr<Hashes>(new Hashes(gpu, *std::move(module)));
  const OwnedModule& loaded = hashes->module_;
  absl::Status status = gpu.FindKernel(loaded, "hash_8_bits", &hashes->bits_8_);
  status.Update(gpu.FindKernel(loaded, "hash_16_bits", &hashes->bits_16_));
  status.Update(gpu.FindKernel(loaded, "hash_32_bits", &hashes->bits_32_));
  status.Update(gpu.FindKernel(loaded, "hash_64_bits", &hashes->bits_64_));
  if (!status.ok()) return status;
  return hashes;
}

absl::StatusOr<std::vector<int64_t>> Hashes::Of(std::span<const Tensor> tensors, CudaStream stream,
                                                std::chrono::milliseconds timeout) {
  constexpr char kWhat[] = "hash parameters";
  std::vector<int64_t> hashes(tensors.size());
  if (hashes.empty()) return hashes;
  const size_t bytes = hashes.size() * sizeof(int64_t);
  if (bytes > sums_bytes_) {
    absl::StatusOr<DeviceMemory> sums = gpu_.Allocate(kWhat, bytes);
    if (!sums.ok()) return sums.status();
    sums_ = *std::move(sums);
    sums_bytes_ = bytes;
  }
  absl::Status status = gpu_.Fill(kWhat, sums_.get(), 0, bytes, stream);
  for (size_t i = 0; status.ok() && i < tensors.size(); ++i) {
    status = Add(tensors[i], static_cast<uint64_t*>(sums_.get()) + i, stream);
  }
  if (status.ok()) status = AwaitStream(gpu_, kWhat, stream, timeout);
  if (status.ok()) status = gpu_.CopyToHost(kWhat, hashes.data(), sums_.get(), bytes, stream);
  if (status.ok()) status = gpu_.Synchronize(kWhat, stream);
  if (status.ok()) return hashes;
  (void)sums_.release();
  sums_bytes_ = 0;
  (void)module_.release();
  return status;
}

absl::Status Hashes::Add(const Tensor& tensor, uint64_t* hash, CudaStream stream) const {
  const int64_t count = static_cast<int64_t>(tensor.count);
  if (count == 0) return absl::OkStatus();
  const LaunchShape shape = ShapeForHash(count);
  const auto launch = [&]<typename Bits>(const HashKernel<Bits>& kernel) {
    return kernel.Launch(stream, shape, static_cast<const Bits*>(tensor.data), count, hash);
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
