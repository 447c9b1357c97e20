#include "tests/worker_runtime/comm/nccl/gpu_rank.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "rendezvous/base/check.h"
#include "tests/support/expect.h"
#include "tests/support/files.h"
#include "worker_runtime/gpu/gpu_runtime.h"

namespace ddprun::testing {

using ddp::internal::CudaPointer;
using ddp::internal::CudaResult;
using ddp::internal::CudaStream;
using ddp::internal::kCudaSuccess;

namespace {

// A function of the double's own.
template <typename Function>
Function OfDouble(const char* name) {
  void* library = dlopen(std::getenv("DDPRUN_CUDA_LIB"), RTLD_NOW | RTLD_NOLOAD);
  DDP_CHECK(library != nullptr);
  void* function = dlsym(library, name);
  DDP_CHECK(function != nullptr);
  return reinterpret_cast<Function>(function);
}

}  // namespace

std::map<std::string, std::string> DoubleEnv(std::map<std::string, std::string> more,
                                             const std::string& library) {
  const std::string path = std::filesystem::absolute("tests/gpu_double/" + library).string();
  std::map<std::string, std::string> env = {
      {"DDPRUN_CUDA_LIB", path}, {"DDPRUN_NCCL_LIB", path}, {"CUDA_VISIBLE_DEVICES", ""}};  // unset
  for (auto& [name, value] : more) env[name] = std::move(value);
  return env;
}

std::string RunOnDouble(int world_size, const std::map<std::string, std::string>& env,
                        const RankProcesses::Body& body) {
  RankProcesses ranks({.world_size = world_size, .env = env, .env_of_rank = {}}, body);
  std::string codes;
  for (int rank = 0; rank < world_size; ++rank) {
    codes += (rank == 0 ? "" : " ") + std::to_string(ranks.Await(rank));
  }
  return codes;
}

std::string OnRanks(int world_size, const std::function<int(ddp::Communicator&)>& body) {
  return RunOnDouble(world_size, DoubleEnv(), [&body](int) {
    const auto group = GpuGroup();
    EXPECT(body(group->communicator()) == 0);
    EXPECT(group->communicator().error().ok());
    EXPECT(group->Shutdown().ok());
    return 0;
  });
}

const ddp::internal::CudaApi& Driver() { return ddp::internal::Cuda()->api; }

ddp::Stream NewStream() {
  CudaStream stream = nullptr;
  DDP_CHECK(Driver().cuStreamCreateWithPriority(&stream, ddp::internal::kCudaStreamNonBlocking,
                                                0) == kCudaSuccess);
  return stream;
}

int HoldStream(ddp::Stream stream) {
  int hold = 0;
  DDP_CHECK(OfDouble<CudaResult (*)(CudaStream, int*)>("ddprun_double_hold")(
                static_cast<CudaStream>(stream), &hold) == kCudaSuccess);
  return hold;
}

void ReleaseStream(int hold) {
  DDP_CHECK(OfDouble<CudaResult (*)(int)>("ddprun_double_release")(hold) == kCudaSuccess);
}

void SilenceDriver() { OfDouble<void (*)()>("ddprun_double_fall_silent")(); }

void RefuseThreads() { OfDouble<void (*)()>("ddprun_double_refuse_threads")(); }

std::string FirstBehindCopy() {
  std::istringstream log(ReadFile(std::getenv("DDPRUN_DOUBLE_LOG")));
  const std::string mine = "pid=" + std::to_string(getpid()) + " ";
  std::string record, first;
  for (std::string line; std::getline(log, line);) {
    if (line.rfind(mine, 0) != 0) continue;
    const size_t copy = line.find(" copy device to device");
    if (copy != std::string::npos) {
      const size_t stream = line.find(" stream=");
      record = line.substr(stream, copy - stream) + " record event=";
      first.clear();
    } else if (record.empty() || !first.empty()) {
      continue;
    } else if (line.find(record) != std::string::npos) {
      first = "record";
    } else if (line.find(" free bytes=") != std::string::npos) {
      first = "free";
    }
  }
  return first;
}

DeviceArray::DeviceArray(const std::vector<float>& values) : size_(values.size()) {
  DDP_CHECK(Driver().cuMemAlloc(&pointer_, values.size() * sizeof(float)) == kCudaSuccess);
  DDP_CHECK(Driver().cuMemcpyHtoDAsync(pointer_, values.data(), values.size() * sizeof(float),
                                       nullptr) == kCudaSuccess);
  DDP_CHECK(Driver().cuStreamSynchronize(nullptr) == kCudaSuccess);
}

std::vector<float> DeviceArray::Read(ddp::Stream stream) const {
  std::vector<float> values(size_);
  CudaStream on = static_cast<CudaStream>(stream);
  DDP_CHECK(Driver().cuMemcpyDtoHAsync(values.data(), pointer_, size_ * sizeof(float), on) ==
            kCudaSuccess);
  DDP_CHECK(Driver().cuStreamSynchronize(on) == kCudaSuccess);
  return values;
}

std::unique_ptr<ddp::ProcessGroup> GpuGroup(std::chrono::milliseconds timeout) {
  auto group = ddp::ProcessGroup::FromEnv({.timeout = timeout, .device = ddp::DeviceChoice::kCuda});
  if (!group.ok()) {
    std::fprintf(stderr, "no group: %s\n", std::string(group.status().message()).c_str());
    RankProcesses::Say(std::string(group.status().message()));
    _exit(90);
  }
  // What frameworks do for their own calls, and the test's need.
  ddp::internal::CudaContext context = nullptr;
  ddp::internal::CudaDevice device = 0;
  DDP_CHECK(Driver().cuDeviceGet(&device, (*group)->gpu()) == kCudaSuccess);
  DDP_CHECK(Driver().cuDevicePrimaryCtxRetain(&context, device) == kCudaSuccess);
  DDP_CHECK(Driver().cuCtxSetCurrent(context) == kCudaSuccess);
  return *std::move(group);
}

}  // namespace ddprun::testing
