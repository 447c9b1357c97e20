// What the GPU tests start: a model that learns one number per rank's target, with its gradients
// written by copies, so that it runs where no kernel can.
//
//   gpu_worker STEPS [die|stop STEP TIMEOUT_S]
//
// In the given step of the job's first attempt rank 1 dies or stops; from that step on collectives
// may take TIMEOUT_S. Not earlier, so that a slow machine does not end what is to succeed.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ddp/ddp.h"
#include "worker_runtime/gpu/gpu_runtime.h"

namespace {

using ddp::internal::CudaApi;
using ddp::internal::CudaPointer;
using ddp::internal::CudaStream;

constexpr size_t kCount = 10000;
constexpr int kLayers = 4;

void MustBeOk(const char* what, const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "gpu_worker: %s: %s\n", what, std::string(status.message()).c_str());
  std::exit(EXIT_FAILURE);
}

// The driver, called so that an error ends the program.
class Gpu {
 public:
  explicit Gpu(int ordinal) : api_(ddp::internal::Cuda()->api) {
    ddp::internal::CudaDevice device = 0;
    ddp::internal::CudaContext context = nullptr;
    Check("cuDeviceGet", api_.cuDeviceGet(&device, ordinal));
    Check("cuDevicePrimaryCtxRetain", api_.cuDevicePrimaryCtxRetain(&context, device));
    Check("cuCtxSetCurrent", api_.cuCtxSetCurrent(context));
    Check("cuStreamCreateWithPriority",
          api_.cuStreamCreateWithPriority(&stream_, ddp::internal::kCudaStreamNonBlocking, 0));
  }
  CudaStream stream() const { return stream_; }
  CudaPointer Allocate(const std::vector<float>& values) {
    CudaPointer pointer = 0;
    Check("cuMemAlloc", api_.cuMemAlloc(&pointer, values.size() * sizeof(float)));
    Write(pointer, values);
    Synchronize();
    return pointer;
  }
  void Write(CudaPointer to, const std::vector<float>& values) {
    Check("cuMemcpyHtoDAsync",
          api_.cuMemcpyHtoDAsync(to, values.data(), values.size() * sizeof(float), stream_));
  }
  std::vector<float> Read(CudaPointer from) {
    std::vector<float> values(kCount);
    Check("cuMemcpyDtoHAsync",
          api_.cuMemcpyDtoHAsync(values.data(), from, kCount * sizeof(float), stream_));
    Synchronize();
    return values;
  }
  void Synchronize() { Check("cuStreamSynchronize", api_.cuStreamSynchronize(stream_)); }

 private:
  void Check(const char* call, ddp::internal::CudaResult result) {
    MustBeOk("cuda", ddp::internal::CudaStatus(api_, call, result));
  }

  const CudaApi& api_;
  CudaStream stream_ = nullptr;
};

struct Fault {
  std::string kind;
  int step = 0;
  std::chrono::seconds timeout{0};
};

void Train(ddp::ProcessGroup& group, int steps, const Fault& fault) {
  Gpu gpu(group.gpu());
  ddp::DistributedDataParallel ddp(group.communicator(),
                                   {.bucket_cap_bytes = 50'000, .first_bucket_bytes = 50'000});
  std::vector<CudaPointer> layers;
  for (int i = 0; i < kLayers; ++i) {
    layers.push_back(gpu.Allocate(std::vector<float>(kCount, static_cast<float>(group.rank()))));
    ddp.AddParameter("layer" + std::to_string(i), reinterpret_cast<void*>(layers.back()), kCount,
                     ddp::DType::kFloat32);
  }
  MustBeOk("finalize", ddp.Finalize());
  std::vector<std::vector<float>> gradients(kLayers);
  const float target = static_cast<float>(1 + group.rank());
  for (int step = 1; step <= steps; ++step) {
    if (step == fault.step && group.restart_count() == 0) {
      group.communicator().SetTimeout(fault.timeout);
      if (group.rank() == 1) raise(fault.kind == "die" ? SIGKILL : SIGSTOP);
    }
    MustBeOk("zero", ddp.ZeroGrad(gpu.stream()));
    for (int i = kLayers - 1; i >= 0; --i) {
      gradients[i] = gpu.Read(layers[i]);
      for (float& value : gradients[i]) value -= target;
      gpu.Write(reinterpret_cast<CudaPointer>(ddp.GradientPtr(i)), gradients[i]);
      MustBeOk("gradient", ddp.GradientReady(i, gpu.stream()));
    }
    MustBeOk("finish", ddp.Finish(gpu.stream()));
    for (int i = 0; i < kLayers; ++i) {
      std::vector<float> values = gpu.Read(layers[i]);
      const std::vector<float> gradient =
          gpu.Read(reinterpret_cast<CudaPointer>(ddp.GradientPtr(i)));
      for (size_t k = 0; k < kCount; ++k) values[k] -= 0.5f * gradient[k];
      gpu.Write(layers[i], values);
      gpu.Synchronize();
    }
  }
  const float last = gpu.Read(layers[0])[kCount - 1];
  std::printf("rank %d learned %.3f, restarts %d, %s\n", group.rank(), static_cast<double>(last),
              group.restart_count(), group.description().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 5) return 2;
  Fault fault;
  if (argc == 5) fault = {argv[2], std::atoi(argv[3]), std::chrono::seconds(std::atoi(argv[4]))};
  auto group = ddp::ProcessGroup::FromEnv(
      {.timeout = std::chrono::seconds(60), .device = ddp::DeviceChoice::kCuda});
  MustBeOk("group", group.status());
  Train(**group, std::atoi(argv[1]), fault);
  MustBeOk("shutdown", (*group)->Shutdown());
  return EXIT_SUCCESS;
}
