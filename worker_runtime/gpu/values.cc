#include "worker_runtime/gpu/values.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker_runtime/gpu/await_stream.h"
#include "worker_runtime/gpu/values_ptx.h"

namespace ddp::internal {
namespace {

constexpr char kWhat[] = "add up the values of gradients";
constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};
// Each thread has a sum; their number is fixed so that every GPU adds in the same order.
constexpr unsigned kThreads = 256, kMostBlocks = 256;
constexpr int64_t kSums = int64_t{kThreads} * kMostBlocks;

LaunchShape ShapeForSums(int64_t count) {
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  return {.blocks = static_cast<unsigned>(std::min<int64_t>(blocks, kMostBlocks)),
          .threads_x = kThreads};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Values>> Values::Load(const CudaApi& cuda) {
  const Gpu gpu(cuda);
  absl::StatusOr<OwnedModule> module = gpu.LoadPtx("values.cu", kValuesPtx);
  if (!module.ok()) return module.status();
  absl::StatusOr<DeviceMemory> sums = gpu.Allocate(kWhat, kSums * sizeof(double));
  if (!sums.ok()) return sums.status();
  auto values = std::unique_ptr<Values>(new Values(gpu, *std::move(module), *std::move(sums)));
  absl::Status status = gpu.FindKernel(values->module_, "fold_sums", &values->fold_);
  for (const DType type : kFloats) {
    const auto i = static_cast<size_t>(type);
    const std::string scale = absl::StrCat("scale_", Name(type));
    const std::string add = absl::StrCat("add_", Name(type));
    status.Update(gpu.FindKernel(values->module_, scale.c_str(), &values->scale_[i]));
    status.Update(gpu.FindKernel(values->module_, add.c_str(), &values->add_[i]));
  }
  if (!status.ok()) return status;
  return values;
}

absl::Status Values::Scale(DType type, void* values, int64_t count, double factor,
                           CudaStream stream) const {
  if (count == 0) return absl::OkStatus();
  return scale_[static_cast<size_t>(type)].Launch(stream, ShapeFor(count), values, count, factor);
}

absl::Status Values::Clear(CudaStream stream) const {
  return gpu_.Fill(kWhat, sums(), 0, kSums * sizeof(double), stream);
}

absl::Status Values::Add(DType type, const void* values, int64_t count, ValueTerm term,
                         double order, CudaStream stream) const {
  if (count == 0) return absl::OkStatus();
  return add_[static_cast<size_t>(type)].Launch(stream, ShapeForSums(count), values, count,
                                                static_cast<int64_t>(term), order, sums());
}

absl::StatusOr<double> Values::Total(ValueTerm term, CudaStream stream,
                                     std::chrono::milliseconds timeout) const {
  std::array<double, kThreads> parts;
  absl::Status status = fold_.Launch(stream, {.blocks = 1, .threads_x = kThreads}, sums(), kSums,
                                     static_cast<int64_t>(term));
  if (status.ok()) status = AwaitStream(gpu_, kWhat, stream, timeout);
  if (status.ok()) status = gpu_.CopyToHost(kWhat, parts.data(), sums(), sizeof(parts), stream);
  if (status.ok()) status = gpu_.Synchronize(kWhat, stream);
  if (!status.ok()) return status;
  double total = 0;
  for (const double part : parts) {
    if (term != ValueTerm::kLargest) {
      total += part;
    } else if (part > total || std::isnan(part)) {
      total = part;
      if (std::isnan(total)) break;
    }
  }
  return total;
}

}  // namespace ddp::internal
