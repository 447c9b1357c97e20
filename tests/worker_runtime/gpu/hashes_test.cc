#include "worker_runtime/gpu/hashes.h"

#include <doctest/doctest.h>

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/emulated_cuda.h"
#include "tests/worker_runtime/gpu/emulated_kernels.h"

namespace ddp::internal {
namespace {

using ddprun::testing::EmulatedCuda;
using ddprun::testing::EmulatedHashes;

constexpr std::chrono::seconds kTimeout(60);

CudaStream SomeStream() {
  static int stream;
  return reinterpret_cast<CudaStream>(&stream);
}

// A driver that knows what memory and modules it holds. One at a time. Frees in the end what is
// left to the end of the process.
class CountingCuda {
 public:
  CountingCuda() {
    real = cuda.api();
    api = real;
    api.cuMemAlloc = [](CudaPointer* memory, size_t bytes) {
      const CudaResult result = real.cuMemAlloc(memory, bytes);
      if (result == kCudaSuccess) memories.insert(*memory);
      return result;
    };
    api.cuMemFree = [](CudaPointer memory) {
      memories.erase(memory);
      return real.cuMemFree(memory);
    };
    api.cuModuleLoadData = [](CudaModule* module, const void* image) {
      const CudaResult result = real.cuModuleLoadData(module, image);
      if (result == kCudaSuccess) modules.insert(*module);
      return result;
    };
    api.cuModuleUnload = [](CudaModule module) {
      modules.erase(module);
      return real.cuModuleUnload(module);
    };
  }
  ~CountingCuda() {
    while (!memories.empty()) api.cuMemFree(*memories.begin());
    while (!modules.empty()) api.cuModuleUnload(*modules.begin());
  }

  static inline std::set<CudaPointer> memories;
  static inline std::set<CudaModule> modules;
  EmulatedCuda cuda{EmulatedHashes()};
  CudaApi api{};

 private:
  static inline CudaApi real{};
};

template <typename T>
uint64_t HashOf(Hashes& hashes, std::vector<T> values, DType dtype) {
  const Tensor tensor = {"p", values.data(), values.size(), dtype};
  const absl::StatusOr<std::vector<int64_t>> result =
      hashes.Of({&tensor, 1}, SomeStream(), kTimeout);
  REQUIRE_MESSAGE(result.ok(), result.status().ToString());
  return static_cast<uint64_t>(result->at(0));
}

// The numbers come from the formula in Python, in integers without a bound.
TEST_CASE("hashes: known tensors have known numbers, alike on every GPU") {
  EmulatedCuda cuda(EmulatedHashes());
  const auto hashes = Hashes::Load(cuda.api());
  REQUIRE_MESSAGE(hashes.ok(), hashes.status().ToString());
  CHECK(HashOf<float>(**hashes, {}, DType::kFloat32) == 0);
  CHECK(HashOf<int64_t>(**hashes, {1}, DType::kInt64) == 0x9e0160293a33aaf7);
  CHECK(HashOf<float>(**hashes, {0.0f}, DType::kFloat32) == 0x48218226ff3cd4bf);
  CHECK(HashOf<float>(**hashes, {1, 2, 3}, DType::kFloat32) == 0x36fcd7b22af616e);
  CHECK(HashOf<uint8_t>(**hashes, std::vector<uint8_t>(1000, 255), DType::kUint8) ==
        0x59b52e287bcb31b0);
}

TEST_CASE("hashes: a bit, a place and a sign change them, in any part of a large tensor") {
  EmulatedCuda cuda(EmulatedHashes());
  const auto hashes = Hashes::Load(cuda.api());
  REQUIRE(hashes.ok());
  CHECK(HashOf<float>(**hashes, {1, 2}, DType::kFloat32) !=
        HashOf<float>(**hashes, {2, 1}, DType::kFloat32));
  CHECK(HashOf<double>(**hashes, {0.0}, DType::kFloat64) !=
        HashOf<double>(**hashes, {-0.0}, DType::kFloat64));
  std::vector<uint16_t> values(256 * 256 + 777, 0x3c00);  // more than the grid has threads
  const uint64_t before = HashOf(**hashes, values, DType::kFloat16);
  CHECK(HashOf(**hashes, values, DType::kFloat16) == before);
  for (const size_t at : {size_t{0}, size_t{65535}, size_t{65536}, values.size() - 1}) {
    values[at] ^= 1;
    CHECK(HashOf(**hashes, values, DType::kFloat16) != before);
    values[at] ^= 1;
  }
  // Each tensor has its own number, an empty one among them none of the next.
  float one[] = {1};
  const Tensor tensors[] = {{"a", one, 1, DType::kFloat32},
                            {"empty", nullptr, 0, DType::kFloat32},
                            {"b", one, 1, DType::kFloat32}};
  const auto each = (*hashes)->Of(tensors, SomeStream(), kTimeout);
  REQUIRE(each.ok());
  CHECK(each->at(0) == each->at(2));
  CHECK(each->at(1) == 0);
}

TEST_CASE("hashes: a driver that refuses the kernels, a launch or a copy is an error") {
  CountingCuda counting;
  EmulatedCuda& cuda = counting.cuda;
  cuda.Fail("cuModuleLoadData", kCudaErrorInvalidPtx);
  CHECK(std::string(Hashes::Load(counting.api).status().message())
            .starts_with("load the kernels of hash.cu: cuModuleLoadData: "));
  cuda.Fail("cuModuleLoadData", kCudaSuccess);
  const auto hashes = Hashes::Load(counting.api);
  REQUIRE(hashes.ok());
  float one[] = {1};
  const Tensor tensor = {"p", one, 1, DType::kFloat32};
  for (const char* call : {"cuMemAlloc", "cuMemsetD8Async", "hash_32_bits", "cuMemcpyDtoHAsync",
                           "cuStreamSynchronize"}) {
    CAPTURE(call);
    cuda.Fail(call, kCudaErrorInvalidContext);
    const absl::Status status = (*hashes)->Of({&tensor, 1}, SomeStream(), kTimeout).status();
    CHECK_FALSE(status.ok());
    CHECK(status.message() == Contains(call));
    cuda.Fail(call, kCudaSuccess);
  }
  CHECK((*hashes)->Of({&tensor, 1}, SomeStream(), kTimeout).ok());
}

TEST_CASE("hashes: a call frees nothing, as the driver may wait in it without a deadline") {
  EmulatedCuda cuda(EmulatedHashes());
  const auto hashes = Hashes::Load(cuda.api());
  REQUIRE(hashes.ok());
  CHECK(HashOf<float>(**hashes, {1, 2}, DType::kFloat32) ==
        HashOf<float>(**hashes, {1, 2}, DType::kFloat32));
  CHECK(cuda.Count("cuMemAlloc") == 1);
  CHECK(cuda.Count("cuMemFree") == 0);
}

TEST_CASE("hashes: after a timeout a kernel that still runs has its memory and its code") {
  CountingCuda counting;
  float one[] = {1};
  const Tensor tensor = {"p", one, 1, DType::kFloat32};
  {
    auto hashes = Hashes::Load(counting.api);
    REQUIRE(hashes.ok());
    counting.cuda.Fail("cuStreamQuery", kCudaErrorNotReady);
    // lower bound: the stream never ends
    CHECK((*hashes)->Of({&tensor, 1}, SomeStream(), std::chrono::milliseconds(1)).status() ==
          absl::DeadlineExceededError(
              "hash parameters: the GPU has not ended what is on the stream within 1 ms"));
    const std::set<CudaPointer> in_use = counting.memories;
    REQUIRE(in_use.size() == 1);
    counting.cuda.Fail("cuStreamQuery", kCudaSuccess);
    CHECK(HashOf<float>(**hashes, {1}, DType::kFloat32) ==
          HashOf<float>(**hashes, {1}, DType::kFloat32));
    CHECK(counting.memories.contains(*in_use.begin()));
  }
  CHECK(counting.memories.size() == 1);
  CHECK(counting.modules.size() == 1);
}

}  // namespace
}  // namespace ddp::internal
