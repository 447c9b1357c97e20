#include "worker_runtime/gpu/casts.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/emulated_cuda.h"
#include "tests/worker_runtime/gpu/emulated_kernels.h"
#include "worker_runtime/comm/kernels.h"

namespace ddp::internal {
namespace {

using ddprun::testing::EmulatedCasts;
using ddprun::testing::EmulatedCuda;

constexpr DType kHalves[] = {DType::kFloat16, DType::kBFloat16};
constexpr uint16_t kUntouched = 0x5a5a;
CudaStream SomeStream() {
  static int stream;
  return reinterpret_cast<CudaStream>(&stream);
}

uint16_t RoundedByCpu(DType type, float value) {
  uint16_t bits = 0;
  PortableKernels().store(type, &value, &bits, 1, 1);
  return bits;
}

// Ties, both infinities, overflow, subnormals and what lies around them.
std::vector<float> Values(size_t count) {
  const float limit = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0.0f,     -0.0f,    1.0f,   1.00390625f, 1.01171875f,
                               65504.0f, 65520.0f, 1e30f,  limit,       -limit,
                               6e-8f,    -3e-8f,   1e-40f, 0.1f,        -2.0f / 3};
  while (values.size() < count) {
    const float next = std::ldexp(std::sin(static_cast<float>(values.size())),
                                  static_cast<int>(values.size() % 60) - 40);
    values.push_back(next);
  }
  values.resize(count);
  return values;
}

void CheckNarrow(const Casts& casts, DType type, size_t count, size_t input_at, size_t output_at) {
  const float scale = 1.0f / 3;
  const std::vector<float> values = Values(count);
  std::vector<float> input(input_at + count);
  std::copy(values.begin(), values.end(), input.begin() + static_cast<std::ptrdiff_t>(input_at));
  std::vector<uint16_t> output(output_at + count + 4, kUntouched);
  REQUIRE(casts
              .Narrow(type, input.data() + input_at, output.data() + output_at,
                      static_cast<int64_t>(count), scale, SomeStream())
              .ok());
  size_t wrong = 0;
  for (size_t i = 0; i < output.size(); ++i) {
    const bool is_inside = i >= output_at && i < output_at + count;
    const uint16_t expected =
        is_inside ? RoundedByCpu(type, values[i - output_at] * scale) : kUntouched;
    wrong += output[i] != expected ? 1 : 0;
  }
  INFO("count ", count, ", input at ", input_at, ", output at ", output_at);
  CHECK(wrong == 0);
}

TEST_CASE("casts: narrowing scales, then rounds as the CPU does, and writes nothing else") {
  EmulatedCuda cuda(EmulatedCasts());
  const auto casts = Casts::Load(cuda.api());
  REQUIRE_MESSAGE(casts.ok(), std::string(casts.status().message()));
  for (const DType type : kHalves) {
    for (const size_t count : {0, 1, 3, 4, 5, 1023, 1024, 4099}) {
      for (const size_t at : {0, 1, 2, 3, 4}) {
        CheckNarrow(**casts, type, count, at, 0);
        CheckNarrow(**casts, type, count, 0, at);
        CheckNarrow(**casts, type, count, at, at);
      }
    }
    // More than the largest grid has threads.
    CheckNarrow(**casts, type, 4 * 2048 * 256 + 1030, 0, 0);
    CheckNarrow(**casts, type, 2048 * 256 + 3, 1, 0);
  }
}

TEST_CASE("casts: widening gives every 16-bit value the CPU's float32") {
  EmulatedCuda cuda(EmulatedCasts());
  const auto casts = Casts::Load(cuda.api());
  REQUIRE(casts.ok());
  constexpr size_t kCount = 0x10000;
  for (const DType type : kHalves) {
    for (const size_t at : {0, 1}) {
      std::vector<uint16_t> input(kCount + at);
      for (size_t i = 0; i < kCount; ++i) input[i + at] = static_cast<uint16_t>(i);
      std::vector<float> output(kCount + 1, 77.0f), expected(kCount);
      REQUIRE((*casts)->Widen(type, input.data() + at, output.data(), kCount, SomeStream()).ok());
      PortableKernels().load(type, input.data() + at, expected.data(), kCount);
      CHECK(std::memcmp(output.data(), expected.data(), kCount * sizeof(float)) == 0);
      CHECK(output[kCount] == 77.0f);
    }
  }
}

TEST_CASE("casts: a driver that refuses the kernels or a launch is an error that names them") {
  EmulatedCuda cuda(EmulatedCasts());
  for (const CudaResult result :
       {kCudaErrorNoBinaryForGpu, kCudaErrorInvalidPtx, kCudaErrorUnsupportedPtxVersion}) {
    cuda.Fail("cuModuleLoadData", result);
    const absl::Status refused = Casts::Load(cuda.api()).status();
    CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
    const std::string words(refused.message());
    CAPTURE(words);
    CHECK(words.starts_with("load the kernels of cast.cu: cuModuleLoadData: "));
    CHECK(
        words.ends_with("; they need a GPU of compute capability 8.0 or newer (A100, RTX 30 and "
                        "later) and an NVIDIA driver for CUDA 11.4 or newer; this driver is for "
                        "CUDA 12.4"));
  }
  // What has other causes is told in the driver's words alone.
  cuda.Fail("cuModuleLoadData", kCudaErrorOutOfMemory);
  const absl::Status full = Casts::Load(cuda.api()).status();
  CHECK(full.code() == absl::StatusCode::kResourceExhausted);
  CHECK(full.message() != Contains("compute capability"));

  cuda.Fail("cuModuleLoadData", kCudaSuccess);
  const auto casts = Casts::Load(cuda.api());
  REQUIRE(casts.ok());
  cuda.Fail("bfloat16_to_float32", kCudaErrorInvalidContext);
  const uint16_t input = 0;
  float output = 0;
  const absl::Status failed = (*casts)->Widen(DType::kBFloat16, &input, &output, 1, SomeStream());
  CHECK(failed.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(failed.message()).starts_with("cuLaunchKernel of bfloat16_to_float32: "));
}

}  // namespace
}  // namespace ddp::internal
