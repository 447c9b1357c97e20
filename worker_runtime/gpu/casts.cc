#include "worker_runtime/gpu/casts.h"

#include <utility>

#include "rendezvous/base/check.h"
#include "worker_runtime/gpu/cast_ptx.h"

namespace ddp::internal {
namespace {

bool IsHalf(DType type) { return type == DType::kFloat16 || type == DType::kBFloat16; }

// The kernels move four elements at a time.
LaunchShape ShapeForCast(int64_t count) { return ShapeFor(count / 4); }

}  // namespace

absl::StatusOr<std::unique_ptr<Casts>> Casts::Load(const CudaApi& cuda) {
  const Gpu gpu(cuda);
  absl::StatusOr<OwnedModule> module = gpu.LoadPtx("cast.cu", kCastPtx);
  if (!module.ok()) return module.status();
  auto casts = std::unique_ptr<Casts>(new Casts(*std::move(module)));
  const OwnedModule& loaded = casts->module_;
  absl::Status status = gpu.FindKernel(loaded, "float32_to_float16", &casts->to_float16_);
  status.Update(gpu.FindKernel(loaded, "float32_to_bfloat16", &casts->to_bfloat16_));
  status.Update(gpu.FindKernel(loaded, "float16_to_float32", &casts->from_float16_));
  status.Update(gpu.FindKernel(loaded, "bfloat16_to_float32", &casts->from_bfloat16_));
  if (!status.ok()) return status;
  return casts;
}

absl::Status Casts::Narrow(DType type, const float* input, uint16_t* output, int64_t count,
                           float scale, CudaStream stream) const {
  DDP_CHECK(IsHalf(type) && count >= 0);
  if (count == 0) return absl::OkStatus();
  const NarrowKernel& kernel = type == DType::kFloat16 ? to_float16_ : to_bfloat16_;
  return kernel.Launch(stream, ShapeForCast(count), input, output, count, scale);
}

absl::Status Casts::Widen(DType type, const uint16_t* input, float* output, int64_t count,
                          CudaStream stream) const {
  DDP_CHECK(IsHalf(type) && count >= 0);
  if (count == 0) return absl::OkStatus();
  const WidenKernel& kernel = type == DType::kFloat16 ? from_float16_ : from_bfloat16_;
  return kernel.Launch(stream, ShapeForCast(count), input, output, count);
}

}  // namespace ddp::internal
