#include "worker_runtime/comm/nccl/op_memory.h"

#include <doctest/doctest.h>

#include "tests/support/contains.h"

namespace ddp::internal {
namespace {

// A driver that answers every question about memory with `result`.
template <CudaResult result>
absl::Status CheckedBy() {
  CudaApi api{};
  api.cuPointerGetAttribute = [](void*, int, CudaPointer) { return result; };
  api.cuGetErrorName = [](CudaResult, const char**) { return kCudaErrorInvalidValue; };
  api.cuGetErrorString = [](CudaResult, const char**) { return kCudaErrorInvalidValue; };
  float data = 0;
  const Op op{.kind = OpKind::kAllReduce,
              .dtype = DType::kFloat32,
              .count = 1,
              .input = &data,
              .output = &data};
  return CheckDeviceMemory(api, op, 0, 2);
}

TEST_CASE("op memory: what the driver does not know is refused, its own trouble is told as it is") {
  const absl::Status unknown = CheckedBy<kCudaErrorInvalidValue>();
  CHECK(absl::IsInvalidArgument(unknown));
  CHECK(unknown.message() == Contains("the input is not memory of a GPU"));
  constexpr CudaResult kIllegalAddress = 700;
  const absl::Status trouble = CheckedBy<kIllegalAddress>();
  CHECK_FALSE(absl::IsInvalidArgument(trouble));
  CHECK(trouble.message() == "cuPointerGetAttribute: unknown error (CUresult 700)");
  constexpr CudaResult kInvalidContext = 201;
  CHECK(absl::IsInternal(CheckedBy<kInvalidContext>()));
}

}  // namespace
}  // namespace ddp::internal
