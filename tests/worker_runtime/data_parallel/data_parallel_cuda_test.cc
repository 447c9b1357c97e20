// DataParallel on GPUs: on the double of CUDA, in processes of their own, beside the CPU's.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ddp/data_parallel.h"
#include "tests/support/expect.h"
#include "tests/support/in_child.h"
#include "tests/support/subprocess.h"
#include "worker_runtime/gpu/cuda_api.h"
#include "worker_runtime/gpu/device.h"
#include "worker_runtime/gpu/gpu_runtime.h"

namespace ddp {
namespace {

using internal::AddressOf;
using internal::CudaApi;
using internal::CurrentDevice;
using internal::Device;
using Floats = std::vector<float>;

// "0" when `body` returned 0, on a machine of 4 GPUs.
std::string OnDouble(const std::function<int()>& body,
                     std::map<std::string, std::string> env = {}) {
  env.emplace("DDPRUN_CUDA_LIB", ddprun::testing::Runfile("tests/gpu_double/libgpu_double.so"));
  env.emplace("CUDA_VISIBLE_DEVICES", "");  // unset
  env.emplace("DDPRUN_DOUBLE_GPUS", "4");
  env.emplace("DDPRUN_DOUBLE_FAULT", "eager_free");  // memory is not freed under what uses it
  return ddprun::testing::InChild(env, [&body] { return std::to_string(body()); });
}

bool Says(const absl::Status& status, absl::StatusCode code, const std::string& text) {
  if (status.code() == code && status.message().find(text) != absl::string_view::npos) return true;
  std::fprintf(stderr, "it said: %s\n", status.ToString().c_str());
  return false;
}

// Memory of a device of either kind, and copies between it and the host that are done at once.
class Side {
 public:
  Side(DeviceType type, int count) : type_(type) {
    for (int i = 0; type == DeviceType::kCuda && i < count; ++i) {
      internal::CountGpus(Api()).IgnoreError();
      gpus_.push_back(*Device::Open(Api(), i));
    }
  }

  static const CudaApi& Api() { return internal::Cuda()->api; }

  void* Allocate(int device, size_t bytes) {
    if (type_ == DeviceType::kCpu) return host_.emplace_back(bytes, '\0').data();
    const CurrentDevice current(*gpus_[static_cast<size_t>(device)]);
    internal::CudaPointer pointer = 0;
    Api().cuMemAlloc(&pointer, bytes);
    owned_.push_back({device, pointer});
    return reinterpret_cast<void*>(pointer);
  }
  void* Holding(const Floats& values) {
    void* const made = Allocate(0, values.size() * sizeof(float));
    Write(0, made, values.data(), values.size() * sizeof(float));
    return made;
  }
  void Free(const void* memory) {
    for (auto& [device, pointer] : owned_) {
      if (pointer != AddressOf(memory)) continue;
      const CurrentDevice current(*gpus_[static_cast<size_t>(device)]);
      Api().cuMemFree(pointer);
      pointer = 0;
    }
  }
  void Write(int device, void* to, const void* from, size_t bytes) {
    if (type_ == DeviceType::kCpu) {
      std::memcpy(to, from, bytes);
      return;
    }
    const CurrentDevice current(*gpus_[static_cast<size_t>(device)]);
    Api().cuMemcpyHtoDAsync(AddressOf(to), from, bytes, nullptr);
    Api().cuStreamSynchronize(nullptr);
  }
  std::string Read(int device, const void* from, size_t bytes) {
    std::string read(bytes, '\0');
    if (type_ == DeviceType::kCpu) {
      std::memcpy(read.data(), from, bytes);
      return read;
    }
    const CurrentDevice current(*gpus_[static_cast<size_t>(device)]);
    Api().cuMemcpyDtoHAsync(read.data(), AddressOf(from), bytes, nullptr);
    return read;
  }
  Floats ReadFloats(int device, const void* from, size_t count) {
    const std::string bytes = Read(device, from, count * sizeof(float));
    Floats values(count);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  const DeviceType type_;
  std::vector<std::unique_ptr<Device>> gpus_;
  std::vector<std::pair<int, internal::CudaPointer>> owned_;
  std::deque<std::string> host_;
};

constexpr size_t kInputs = 3;
constexpr int64_t kBatch = 10;

Floats Scores(const Floats& inputs, const Floats& w, float b) {
  Floats scores(inputs.size() / kInputs, b);
  for (size_t i = 0; i < inputs.size(); ++i) scores[i / kInputs] += w[i % kInputs] * inputs[i];
  return scores;
}

// Of w, then of b.
Floats Gradients(const Floats& inputs, std::span<const float> slopes) {
  Floats gradients(kInputs + 1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    gradients[i % kInputs] += slopes[i / kInputs] * inputs[i];
    if (i % kInputs == 0) gradients[kInputs] += slopes[i / kInputs];
  }
  return gradients;
}

// y = w x + b over a batch in the host's memory or on device 0: losses, then weights after 4 steps,
// as bits.
std::string Train(DeviceType type, int replicas, bool batch_is_on_device) {
  Side side(type, replicas);
  DataParallel dp({.device_type = type, .replicas = replicas});
  Floats host_weights = {0.1F, -0.7F, 0.3F}, bias = {0.5F};
  void *const w = side.Holding(host_weights), *const b = side.Holding(bias);
  dp.AddParameter("w", w, kInputs, DType::kFloat32);
  dp.AddParameter("b", b, 1, DType::kFloat32);
  if (absl::Status status = dp.Finalize(); !status.ok()) return status.ToString();
  Floats x, y;
  for (int i = 0; i < kBatch; ++i) {
    for (size_t k = 0; k < kInputs; ++k) x.push_back(1 / static_cast<float>(i + 2 * k + 1));
    y.push_back(static_cast<float>(i % 3) / 3);
  }
  const void* const batch = batch_is_on_device ? side.Holding(x) : x.data();
  std::vector<void*> chunks_x, outputs;
  for (int r = 0; r < replicas; ++r) {
    chunks_x.push_back(side.Allocate(r, x.size() * sizeof(float)));
    outputs.push_back(side.Allocate(r, y.size() * sizeof(float)));
  }
  void* const all = side.Allocate(0, y.size() * sizeof(float));
  std::string bits;
  for (int step = 0; step < 4; ++step) {
    absl::Status status = dp.ZeroGrad();
    const std::vector<Chunk> chunks = dp.Scatter(kBatch);
    status.Update(
        dp.ScatterRows(batch, kInputs * sizeof(float), std::span(chunks_x).first(chunks.size())));
    status.Update(dp.Replicate());
    std::vector<Floats> inputs(chunks.size());
    status.Update(dp.ParallelApply([&](int r) {
      const auto at = static_cast<size_t>(r);
      const auto rows = static_cast<size_t>(chunks[at].end - chunks[at].begin);
      inputs[at] = side.ReadFloats(r, chunks_x[at], rows * kInputs);
      const Floats here = side.ReadFloats(r, dp.ParameterPtr(0, r), kInputs);
      const Floats scores =
          Scores(inputs[at], here, side.ReadFloats(r, dp.ParameterPtr(1, r), 1)[0]);
      side.Write(r, outputs[at], scores.data(), rows * sizeof(float));
      return absl::OkStatus();
    }));
    const std::vector<const void*> gathered(outputs.begin(),
                                            outputs.begin() + static_cast<long>(chunks.size()));
    status.Update(dp.Gather(gathered, sizeof(float), all));
    Floats slopes = side.ReadFloats(0, all, kBatch);
    double loss = 0;
    for (size_t i = 0; i < slopes.size(); ++i) {
      slopes[i] -= y[i];
      loss += slopes[i] * slopes[i];
    }
    bits.append(reinterpret_cast<const char*>(&loss), sizeof(loss));
    status.Update(dp.ParallelApply([&](int r) {
      const auto at = static_cast<size_t>(r);
      const Floats gradients =
          Gradients(inputs[at], std::span(slopes).subspan(static_cast<size_t>(chunks[at].begin)));
      side.Write(r, dp.GradientPtr(0, r), gradients.data(), kInputs * sizeof(float));
      side.Write(r, dp.GradientPtr(1, r), &gradients[kInputs], sizeof(float));
      absl::Status ready = dp.GradientReady(1, r);
      ready.Update(dp.GradientReady(0, r));
      return ready;
    }));
    status.Update(dp.Finish());
    if (!status.ok()) return status.ToString();
    const Floats gradient = side.ReadFloats(0, dp.GradientPtr(0, 0), kInputs);
    for (size_t i = 0; i < kInputs; ++i) host_weights[i] -= 0.05F * gradient[i];
    bias[0] -= 0.05F * side.ReadFloats(0, dp.GradientPtr(1, 0), 1)[0];
    side.Write(0, w, host_weights.data(), kInputs * sizeof(float));
    side.Write(0, b, bias.data(), sizeof(float));
  }
  return bits + side.Read(0, w, kInputs * sizeof(float)) + side.Read(0, b, sizeof(float)) +
         std::to_string(dp.last_step().bytes_moved);
}

TEST_CASE("data parallel on GPUs: training has the bits of the CPU's, for any number of replicas") {
  for (const int replicas : {1, 2, 3, 4}) {
    CAPTURE(replicas);
    CHECK(OnDouble([replicas] {
            const std::string cpu = Train(DeviceType::kCpu, replicas, false);
            const std::string gpu = Train(DeviceType::kCuda, replicas, true);
            if (cpu != gpu) std::fprintf(stderr, "GPU: %s\n", gpu.c_str());
            EXPECT(cpu.size() > 4 * sizeof(double));
            EXPECT(cpu == gpu);
            // The batch may be the host's: then all of it travels.
            const std::string from_host = Train(DeviceType::kCuda, replicas, false);
            const size_t bits = 4 * (sizeof(double) + sizeof(float));
            EXPECT(from_host.substr(0, bits) == gpu.substr(0, bits));
            return 0;
          }) == "0");
  }
}

// The sum of the gradients of 3 replicas, as bits. Element i of replica r has the bytes of a
// pattern.
std::string SumOf(DeviceType type, DType dtype, size_t count) {
  Side side(type, 3);
  DataParallel dp({.device_type = type, .replicas = 3});
  void* const data = side.Allocate(0, count * SizeOf(dtype));
  dp.AddParameter("p", data, count, dtype);
  if (absl::Status status = dp.Finalize(); !status.ok()) return status.ToString();
  dp.Scatter(3);
  absl::Status status = dp.Replicate();
  for (int r = 0; r < 3; ++r) {
    std::string bytes(count * SizeOf(dtype), '\0');
    for (size_t i = 0; i < count; ++i) {
      // Exponents of all floats stay small: none is a NaN, whose bits may be anything.
      const uint64_t pattern =
          (i * 2654435761u + static_cast<unsigned>(r) * 977u) & 0x3f773f773f773f77u;
      std::memcpy(bytes.data() + i * SizeOf(dtype), &pattern, SizeOf(dtype));
    }
    side.Write(r, dp.GradientPtr(0, r), bytes.data(), bytes.size());
    status.Update(dp.GradientReady(0, r));
  }
  status.Update(dp.Finish());
  return status.ok() ? side.Read(0, dp.GradientPtr(0, 0), count * SizeOf(dtype))
                     : status.ToString();
}

TEST_CASE("data parallel on GPUs: gradients of each type have the bits of the CPU's sum") {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                            DType::kInt32, DType::kInt64, DType::kUint8, DType::kInt8}) {
    CAPTURE(std::string(Name(dtype)));
    CHECK(
        OnDouble([dtype] {
          // The last is more than is summed at once.
          for (const size_t count : {size_t{1}, size_t{1001}, (size_t{5} << 20) / SizeOf(dtype)}) {
            EXPECT(SumOf(DeviceType::kCuda, dtype, count) == SumOf(DeviceType::kCpu, dtype, count));
          }
          return 0;
        }) == "0");
  }
}

TEST_CASE("data parallel on GPUs: the gradients are zero before the first pass") {
  CHECK(OnDouble([] {
          Side side(DeviceType::kCuda, 2);
          DataParallel dp({.device_type = DeviceType::kCuda, .replicas = 2});
          void* const data = side.Holding(Floats(10, 1));
          dp.AddParameter("p", data, 10, DType::kFloat32);
          EXPECT(dp.Finalize().ok());
          for (const int replica : {0, 1}) {
            EXPECT(side.ReadFloats(replica, dp.GradientPtr(0, replica), 10) == Floats(10, 0));
          }
          return 0;
        }) == "0");
}

TEST_CASE("data parallel on GPUs: fewer than replicas is an error with both numbers") {
  const auto finalize = [] {
    DataParallel dp({.device_type = DeviceType::kCuda, .replicas = 3});
    return dp.Finalize();
  };
  using Code = absl::StatusCode;
  CHECK(OnDouble(
            [&] {
              EXPECT(Says(finalize(), Code::kFailedPrecondition,
                          "DataParallel with 3 replicas needs as many GPUs, but CUDA shows 2 ("));
              return 0;
            },
            {{"DDPRUN_DOUBLE_GPUS", "2"}}) == "0");
  CHECK(OnDouble(
            [&] {
              EXPECT(Says(finalize(), Code::kNotFound, "CUDA driver: DDPRUN_CUDA_LIB: "));
              return 0;
            },
            {{"DDPRUN_CUDA_LIB", "/nowhere/libcuda.so.1"}}) == "0");
}

TEST_CASE("data parallel on GPUs: a call ends when the devices have done what it began") {
  CHECK(OnDouble([] {
          constexpr size_t kBytes = size_t{64} << 20;
          Side side(DeviceType::kCuda, 2);
          DataParallel dp({.device_type = DeviceType::kCuda, .replicas = 2});
          EXPECT(dp.DeviceStream(1) == nullptr);
          EXPECT(dp.Finalize().ok());
          EXPECT(dp.DeviceStream(0) != nullptr && dp.DeviceStream(0) != dp.DeviceStream(1));
          EXPECT(dp.DeviceStream(2) == nullptr);
          void* const scratch = side.Allocate(1, kBytes);
          dp.Scatter(2);
          EXPECT(dp.Replicate().ok());
          const absl::Status status = dp.ParallelApply([&](int r) {
            if (r == 0) return absl::OkStatus();
            const auto stream = static_cast<internal::CudaStream>(dp.DeviceStream(r));
            for (int i = 0; i < 4; ++i) {
              Side::Api().cuMemsetD8Async(AddressOf(scratch), 1, kBytes, stream);
            }
            return absl::AbortedError("on purpose");  // what it queued is waited for all the same
          });
          EXPECT(Says(status, absl::StatusCode::kAborted, "replica 1: on purpose"));
          const auto stream = static_cast<internal::CudaStream>(dp.DeviceStream(1));
          EXPECT(Side::Api().cuStreamQuery(stream) == internal::kCudaErrorInvalidContext);
          const std::unique_ptr<Device> second = *Device::Open(Side::Api(), 1);
          const CurrentDevice current(*second);
          EXPECT(Side::Api().cuStreamQuery(stream) == internal::kCudaSuccess);
          return 0;
        }) == "0");
}

TEST_CASE("data parallel on GPUs: what is not memory of GPU 0 is refused by its name") {
  using Code = absl::StatusCode;
  CHECK(OnDouble([] {
          Side side(DeviceType::kCuda, 2);
          const auto finalize = [](void* data) {
            DataParallel dp({.device_type = DeviceType::kCuda, .replicas = 2});
            dp.AddParameter("weights", data, 2, DType::kFloat32);
            return dp.Finalize();
          };
          float host[2] = {};
          EXPECT(Says(finalize(host), Code::kInvalidArgument,
                      "parameter 'weights': it is memory of the host; copy it to GPU 0"));
          EXPECT(Says(finalize(side.Allocate(1, 8)), Code::kInvalidArgument,
                      "parameter 'weights': it is memory of GPU 1 and not of GPU 0"));
          EXPECT(finalize(side.Allocate(0, 8)).ok());
          return 0;
        }) == "0");
}

TEST_CASE("data parallel on GPUs: a call of the driver that fails is an error, and none hangs") {
  using Code = absl::StatusCode;
  CHECK(OnDouble([] {
          Side side(DeviceType::kCuda, 3);
          DataParallel dp({.device_type = DeviceType::kCuda, .replicas = 3});
          void* const weights = side.Allocate(0, 8);
          dp.AddParameter("weights", weights, 2, DType::kFloat32);
          EXPECT(dp.Finalize().ok());
          dp.Scatter(3);
          EXPECT(dp.Replicate().ok());
          float host[3] = {};
          const std::vector<const void*> of_host(3, host);
          EXPECT(Says(dp.Gather(of_host, 4, weights), Code::kInvalidArgument,
                      "replica 0: cuMemcpyDtoDAsync: "));
          const std::vector<void*> to_host(3, host);
          EXPECT(Says(dp.ScatterRows(host, 4, to_host), Code::kInvalidArgument,
                      "replica 0: cuMemcpyHtoDAsync: "));
          side.Free(weights);
          EXPECT(Says(dp.Replicate(), Code::kInvalidArgument,
                      "replica 1: copy parameter 'weights': cuMemcpyPeerAsync: "));
          return 0;
        }) == "0");
  CHECK(OnDouble(
            [] {
              Side side(DeviceType::kCuda, 2);
              DataParallel dp({.device_type = DeviceType::kCuda, .replicas = 2});
              dp.AddParameter("weights", side.Allocate(0, 600), 150, DType::kFloat32);
              EXPECT(Says(dp.Finalize(), Code::kResourceExhausted,
                          "DataParallel, replica 0: a replica, 640 bytes on the GPU: cuMemAlloc"));
              EXPECT(dp.GradientPtr(0, 0) == nullptr);
              return 0;
            },
            {{"DDPRUN_DOUBLE_MEMORY", "1000"}}) == "0");
}

TEST_CASE("data parallel on GPUs: its end gives everything back") {
  CHECK(OnDouble([] {
          if (const std::string done = SumOf(DeviceType::kCuda, DType::kFloat32, 9);
              done.size() != 36) {
            return 1;
          }
          void* library = dlopen(std::getenv("DDPRUN_CUDA_LIB"), RTLD_NOW | RTLD_NOLOAD);
          EXPECT(library != nullptr);
          const auto leaks =
              reinterpret_cast<const char* (*)()>(dlsym(library, "ddprun_double_leaks"));
          EXPECT(leaks != nullptr);
          // The gradient's parameter, which the test leaves.
          std::fprintf(stderr, "leaks: %s\n", leaks());
          EXPECT(std::string(leaks()) == "device_memory=1");
          return 0;
        }) == "0");
}

}  // namespace
}  // namespace ddp
