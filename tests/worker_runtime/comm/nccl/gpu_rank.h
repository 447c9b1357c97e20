// One rank of a test on the double of CUDA and NCCL: its group, and arrays in its GPU's memory.
#ifndef DDPRUN_TESTS_WORKER_RUNTIME_COMM_NCCL_GPU_RANK_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_COMM_NCCL_GPU_RANK_H_

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ddp/process_group.h"
#include "tests/support/rank_processes.h"
#include "worker_runtime/gpu/cuda_api.h"

namespace ddprun::testing {

// "1" asks for gradients in registered memory.
inline constexpr char kRegisteredMemory[] = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK";

// The environment of ranks that find `library` for CUDA and NCCL, with `more` on top.
std::map<std::string, std::string> DoubleEnv(std::map<std::string, std::string> more = {},
                                             const std::string& library = "libgpu_double.so");

// Runs `body` in `world_size` processes on the double and returns their exit codes, by rank:
// "0 0" when all is well.
std::string RunOnDouble(int world_size, const std::map<std::string, std::string>& env,
                        const RankProcesses::Body& body);

// The same with a group, which ends well; `body` gets its communicator and returns 0.
std::string OnRanks(int world_size, const std::function<int(ddp::Communicator&)>& body);

// Memory of the present GPU; freed with the process.
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<float>& values);
  float* data() const { return reinterpret_cast<float*>(pointer_); }
  size_t size() const { return size_; }
  // What it holds once all that is on `stream` by now is done.
  std::vector<float> Read(ddp::Stream stream) const;

 private:
  ddp::internal::CudaPointer pointer_ = 0;
  size_t size_;
};

// In a rank's process: the group, on a GPU. Exits with 90 and the reason on stderr if there is
// none.
std::unique_ptr<ddp::ProcessGroup> GpuGroup(
    std::chrono::milliseconds timeout = std::chrono::seconds(60));

const ddp::internal::CudaApi& Driver();
// A stream that does not wait for the legacy one.
ddp::Stream NewStream();
// Puts work on the stream that lasts until it is released.
int HoldStream(ddp::Stream stream);
void ReleaseStream(int hold);
// From now on no call of the driver returns.
void SilenceDriver();
// From now on no new thread can use the device.
void RefuseThreads();
// What comes first in this process' part of the double's log behind its last copy on the device:
// "record", an event on the copy's stream, or "free", of memory.
std::string FirstBehindCopy();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_COMM_NCCL_GPU_RANK_H_
