#include "worker_runtime/gpu/sums.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "worker_runtime/gpu/sum_ptx.h"

namespace ddp::internal {

absl::StatusOr<std::unique_ptr<Sums>> Sums::Load(const CudaApi& cuda) {
  const Gpu gpu(cuda);
  absl::StatusOr<OwnedModule> module = gpu.LoadPtx("sum.cu", kSumPtx);
  if (!module.ok()) return module.status();
  auto sums = std::unique_ptr<Sums>(new Sums(*std::move(module)));
  absl::Status status;
  for (size_t type = 0; type < kTypes; ++type) {
    // A sum of bytes wraps, and its bits are the same with and without a sign.
    const DType bits =
        type == static_cast<size_t>(DType::kInt8) ? DType::kUint8 : static_cast<DType>(type);
    const std::string name = absl::StrCat("sum_", Name(bits));
    status.Update(gpu.FindKernel(sums->module_, name.c_str(), &sums->kernels_[type]));
  }
  if (!status.ok()) return status;
  return sums;
}

absl::Status Sums::Add(DType type, void* sum, const void* inputs, int64_t input_count,
                       int64_t stride, int64_t count, CudaStream stream) const {
  if (count == 0 || input_count == 0) return absl::OkStatus();
  return kernels_[static_cast<size_t>(type)].Launch(stream, ShapeFor(count), sum, inputs,
                                                    input_count, stride, count);
}

}  // namespace ddp::internal
