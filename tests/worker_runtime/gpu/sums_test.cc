#include "worker_runtime/gpu/sums.h"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/emulated_cuda.h"
#include "tests/worker_runtime/gpu/emulated_kernels.h"
#include "worker_runtime/comm/kernels.h"

namespace ddp::internal {
namespace {

using ddprun::testing::EmulatedCuda;
using ddprun::testing::EmulatedSums;

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                            DType::kInt32,   DType::kInt64,   DType::kUint8,   DType::kInt8};

CudaStream SomeStream() {
  static int stream;
  return reinterpret_cast<CudaStream>(&stream);
}

// Bytes that are finite numbers of the type, of very different sizes, and both signs.
std::string Elements(DType type, size_t count, unsigned seed) {
  std::string bytes(count * SizeOf(type), '\0');
  for (size_t i = 0; i < count; ++i) {
    const unsigned random = (static_cast<unsigned>(i) + 977 * seed) * 2654435761u;
    const float value = static_cast<float>(static_cast<int>(random >> 12) - (1 << 19)) /
                        static_cast<float>(1u << (random % 24));
    char* const at = bytes.data() + i * SizeOf(type);
    if (type == DType::kFloat64) {
      const double wide = 1.1 * value;
      std::memcpy(at, &wide, sizeof(wide));
    } else if (type == DType::kFloat32 || SizeOf(type) == 2) {
      const float narrow = SizeOf(type) == 2 ? value / 1024 : value;
      PortableKernels().store(type, &narrow, at, 1, 1);
    } else {
      const uint64_t bits = uint64_t{0x9e3779b97f4a7c15} * random;
      std::memcpy(at, &bits, SizeOf(type));
    }
  }
  return bytes;
}

TEST_CASE("sums: each type has the bits of the CPU's sum, and nothing else is written") {
  EmulatedCuda cuda(EmulatedSums());
  const auto sums = Sums::Load(cuda.api());
  REQUIRE_MESSAGE(sums.ok(), std::string(sums.status().message()));
  for (const DType type : kTypes) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{255}, size_t{1000}}) {
      for (const size_t inputs : {size_t{0}, size_t{1}, size_t{3}}) {
        CAPTURE(std::string(Name(type)));
        CAPTURE(count);
        const size_t stride = count + 5, size = SizeOf(type);
        std::string sum = Elements(type, stride, 1), expected = sum;
        std::string others = Elements(type, stride * inputs, 2);
        std::vector<const void*> all = {expected.data()};
        for (size_t i = 0; i < inputs; ++i) all.push_back(others.data() + i * stride * size);
        void* output = expected.data();
        PortableKernels().reduce(ReduceOp::kSum, type, all.data(), static_cast<int>(all.size()),
                                 &output, 1, count, 1);
        REQUIRE((*sums)
                    ->Add(type, sum.data(), others.data(), static_cast<int64_t>(inputs),
                          static_cast<int64_t>(stride), static_cast<int64_t>(count), SomeStream())
                    .ok());
        CHECK(sum == expected);
      }
    }
  }
}

TEST_CASE("sums: more elements than the largest grid has threads are all summed") {
  EmulatedCuda cuda(EmulatedSums());
  const auto sums = Sums::Load(cuda.api());
  REQUIRE(sums.ok());
  constexpr size_t kCount = 2048 * 256 + 3;
  std::vector<float> sum(kCount, 1), input(kCount, 2);
  REQUIRE((*sums)
              ->Add(DType::kFloat32, sum.data(), input.data(), 1, kCount, kCount, SomeStream())
              .ok());
  CHECK(sum == std::vector<float>(kCount, 3));
}

TEST_CASE("sums: a driver that refuses the kernels or a launch is an error that names them") {
  EmulatedCuda cuda(EmulatedSums());
  cuda.Fail("cuModuleLoadData", kCudaErrorInvalidPtx);
  CHECK(std::string(Sums::Load(cuda.api()).status().message())
            .starts_with("load the kernels of sum.cu: cuModuleLoadData: "));
  cuda.Fail("cuModuleLoadData", kCudaSuccess);
  const auto sums = Sums::Load(cuda.api());
  REQUIRE(sums.ok());
  cuda.Fail("sum_int64", kCudaErrorInvalidContext);
  int64_t sum = 0, input = 0;
  CHECK(std::string((*sums)->Add(DType::kInt64, &sum, &input, 1, 1, 1, SomeStream()).message())
            .starts_with("cuLaunchKernel of sum_int64: "));
}

}  // namespace
}  // namespace ddp::internal
