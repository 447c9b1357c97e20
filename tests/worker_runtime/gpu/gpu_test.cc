// ddp/gpu.h: on the double of CUDA in processes of their own, and on the emulated driver, which
// runs kernels.
#include "ddp/gpu.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/emulated_cuda.h"
#include "tests/support/in_child.h"
#include "tests/support/subprocess.h"
#include "tests/worker_runtime/gpu/emulated_kernels.h"
#include "worker_runtime/gpu/cast_ptx.h"

namespace ddp {
namespace {

using ddprun::testing::EmulatedCasts;
using ddprun::testing::EmulatedCuda;

std::string OnDouble(std::map<std::string, std::string> env,
                     const std::function<std::string()>& body) {
  env.emplace("DDPRUN_CUDA_LIB", ddprun::testing::Runfile("tests/gpu_double/libgpu_double.so"));
  env.emplace("CUDA_VISIBLE_DEVICES", "");  // unset
  return ddprun::testing::InChild(env, body);
}

std::string TextOf(const absl::Status& status) { return status.ToString(); }

// Writes "abcdef", overwrites its middle and reads it back, all behind one event.
absl::Status WriteAndRead(const Gpu& gpu, std::string* text) {
  const auto stream = gpu.MakeStream("the test's stream");
  const auto event = gpu.MakeEvent("the test's event");
  const auto memory = gpu.Allocate("six letters", 6);
  const auto pinned = gpu.AllocatePinned("six letters", 6);
  for (const absl::Status& status :
       {stream.status(), event.status(), memory.status(), pinned.status()}) {
    if (!status.ok()) return status;
  }
  absl::Status status = gpu.Synchronize("an event that was never recorded", *event);
  char* host = static_cast<char*>(pinned->get());
  std::string("abcdef").copy(host, 6);
  status.Update(gpu.CopyToDevice("letters", memory->get(), host, 6, stream->get()));
  status.Update(gpu.Fill("letters", static_cast<char*>(memory->get()) + 2, 'x', 2, stream->get()));
  status.Update(gpu.CopyToHost("letters", host, memory->get(), 6, stream->get()));
  status.Update(gpu.Record(*event, stream->get()));
  status.Update(gpu.Synchronize("letters", *event));
  *text = std::string(host, 6);
  status.Update(gpu.Synchronize("the end", stream->get()));
  if (gpu.IsBusy(stream->get())) *text += ", and busy";
  return status;
}

TEST_CASE("gpu: copies and fills happen in the order of their stream, before its event") {
  CHECK(OnDouble({}, [] {
          const absl::StatusOr<Gpu> gpu = Gpu::Use(1);
          if (!gpu.ok()) return TextOf(gpu.status());
          std::string text;
          const absl::Status status = WriteAndRead(*gpu, &text);
          return status.ok() ? text : TextOf(status);
        }) == "abxxef");
}

TEST_CASE("gpu: an ordinal that CUDA does not show is an error that says how many there are") {
  for (const int ordinal : {-1, 2}) {
    CHECK(OnDouble({{"DDPRUN_DOUBLE_GPUS", "2"}},
                   [ordinal] { return TextOf(Gpu::Use(ordinal).status()); }) ==
          "INVALID_ARGUMENT: use GPU " + std::to_string(ordinal) +
              ": CUDA shows 2, counted from 0");
  }
}

TEST_CASE("gpu: without a driver, or with one that does not start, it says so") {
  const auto use = [] { return TextOf(Gpu::Use(0).status()); };
  const std::string missing = OnDouble({{"DDPRUN_CUDA_LIB", "/nowhere/libcuda.so"}}, use);
  CHECK_MESSAGE(missing.starts_with("NOT_FOUND: CUDA driver: DDPRUN_CUDA_LIB: /nowhere/"), missing);
  const std::string broken = OnDouble({{"DDPRUN_DOUBLE_FAULT", "cuinit=803"}}, use);
  CHECK_MESSAGE(broken.starts_with("FAILED_PRECONDITION: cuInit: "), broken);
}

TEST_CASE("gpu: a kernel that the text lacks is named, one that it has is launched") {
  EmulatedCuda cuda(EmulatedCasts());
  const Gpu gpu(cuda.api());
  const auto module = gpu.LoadPtx("cast.cu", internal::kCastPtx);
  REQUIRE(module.ok());
  const auto stream = gpu.MakeStream("a stream");
  REQUIRE(stream.ok());
  Kernel<void(const uint16_t*, float*, int64_t)> widen;
  const absl::Status missing = gpu.FindKernel(*module, "no_such_kernel", &widen);
  CHECK(std::string(missing.message())
            .starts_with("find the kernel no_such_kernel: cuModuleGetFunction: "));
  REQUIRE(gpu.FindKernel(*module, "float16_to_float32", &widen).ok());
  const std::vector<uint16_t> input = {0x3c00, 0xc000};  // 1 and -2
  std::vector<float> output(2);
  CHECK(widen.Launch(stream->get(), ShapeFor(2), input.data(), output.data(), 2).ok());
  CHECK(output == std::vector<float>{1, -2});
}

TEST_CASE("gpu: a stream is busy while the driver says that it is not ready, and only then") {
  EmulatedCuda cuda(EmulatedCasts());
  const Gpu gpu(cuda.api());
  const auto stream = gpu.MakeStream("a stream");
  REQUIRE(stream.ok());
  CHECK_FALSE(gpu.IsBusy(stream->get()));
  cuda.Fail("cuStreamQuery", internal::kCudaErrorNotReady);
  CHECK(gpu.IsBusy(stream->get()));
  cuda.Fail("cuStreamQuery", internal::kCudaErrorUnknown);
  CHECK_FALSE(gpu.IsBusy(stream->get()));
}

TEST_CASE("gpu: a grid has a thread for each element, up to what a GPU runs at once") {
  CHECK(ShapeFor(0).blocks == 1);
  CHECK(ShapeFor(256).blocks == 1);
  CHECK(ShapeFor(257).blocks == 2);
  CHECK(ShapeFor(int64_t{1} << 40).blocks == 2048);
}

}  // namespace
}  // namespace ddp
