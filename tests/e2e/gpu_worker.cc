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
#include "tools/gpu_check_program/rank.h"
#include "worker_runtime/gpu/cuda_api.h"

namespace {

using ddp::internal::AddressOf;
using ddprun::gpu_check::Gpu;
using ddprun::gpu_check::MustBeOk;

constexpr size_t kCount = 10000;
constexpr size_t kBytes = kCount * sizeof(float);
constexpr int kLayers = 4;

// Queued behind what is on the stream: `values` stay until it is done.
void QueueWrite(Gpu& gpu, void* to, const std::vector<float>& values) {
  gpu.Check("cuMemcpyHtoDAsync",
            gpu.api().cuMemcpyHtoDAsync(AddressOf(to), values.data(), kBytes, gpu.stream()));
}

std::vector<float> Read(Gpu& gpu, const void* from) {
  std::vector<float> values(kCount);
  gpu.Read(values.data(), from, kBytes);
  return values;
}

struct Fault {
  std::string kind;
  int step = 0;
  std::chrono::seconds timeout{0};
};

void Train(ddp::ProcessGroup& group, int steps, const Fault& fault) {
  Gpu gpu(group.gpu());
  ddp::DistributedDataParallel ddp(
      group.communicator(),
      {.bucket_cap_bytes = 50'000, .first_bucket_bytes = 50'000, .stream = gpu.stream()});
  std::vector<void*> layers;
  const std::vector<float> start(kCount, static_cast<float>(group.rank()));
  for (int i = 0; i < kLayers; ++i) {
    layers.push_back(gpu.Allocate(kBytes));
    gpu.Write(layers.back(), start.data(), kBytes);
    ddp.AddParameter("layer" + std::to_string(i), layers.back(), kCount, ddp::DType::kFloat32);
  }
  MustBeOk("finalize", ddp.Finalize());
  std::vector<std::vector<float>> gradients(kLayers);
  const float target = static_cast<float>(1 + group.rank());
  for (int step = 1; step <= steps; ++step) {
    if (step == fault.step && group.restart_count() == 0) {
      group.communicator().SetTimeout(fault.timeout);
      if (group.rank() == 1) raise(fault.kind == "die" ? SIGKILL : SIGSTOP);
    }
    MustBeOk("zero", ddp.ZeroGrad());
    for (int i = kLayers - 1; i >= 0; --i) {
      gradients[i] = Read(gpu, layers[i]);
      for (float& value : gradients[i]) value -= target;
      QueueWrite(gpu, ddp.GradientPtr(i), gradients[i]);
      MustBeOk("gradient", ddp.GradientReady(i));
    }
    MustBeOk("finish", ddp.Finish());
    for (int i = 0; i < kLayers; ++i) {
      std::vector<float> values = Read(gpu, layers[i]);
      const std::vector<float> gradient = Read(gpu, ddp.GradientPtr(i));
      for (size_t k = 0; k < kCount; ++k) values[k] -= 0.5f * gradient[k];
      gpu.Write(layers[i], values.data(), kBytes);
    }
  }
  const float last = Read(gpu, layers[0])[kCount - 1];
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
