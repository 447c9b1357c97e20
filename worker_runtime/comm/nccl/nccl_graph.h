// Operations of a communicator in a CUDA graph.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_GRAPH_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_GRAPH_H_

#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "worker_runtime/comm/nccl/gpu_work.h"
#include "worker_runtime/gpu/cuda_api.h"

namespace ddp::internal {

inline constexpr char kLostCapture[] =
    "the driver gave the capture up: something in the step waited for the device or asked it "
    "something, allocated or freed memory, or used a stream that did not wait for this one";

// Shared by the recorder, which destroys the executable before NCCL's communicator goes, the handle
// of the caller, and the replays in flight, so that the events in it are not given back to the pool
// before.
struct NcclGraph {
  NcclGraph(CudaStream on, std::thread::id by) : stream(on), thread(by) {}
  // REQUIRES: the queue's nccl_mutex(), or nobody else is left.
  void Destroy(const CudaApi& api) {
    if (executable != nullptr) api.cuGraphExecDestroy(std::exchange(executable, nullptr));
  }

  const CudaStream stream;       // of the caller
  const std::thread::id thread;  // that captures

  // Written by the queue while it captures, which `thread` calls and ends.
  std::deque<std::shared_ptr<GpuOperation>> operations;
  absl::Status status;  // of the capture

  uint64_t newest_replay = 0;  // its sequence number; guarded by the queue's mutex

  CudaGraphExec executable = nullptr;  // guarded by nccl_mutex(); null once destroyed
};

using Graphs = std::vector<std::shared_ptr<NcclGraph>>;

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_GRAPH_H_
