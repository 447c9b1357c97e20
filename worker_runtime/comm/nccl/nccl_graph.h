// Operations of a communicator in a CUDA graph.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_GRAPH_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_GRAPH_H_

#include <deque>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "worker_runtime/comm/nccl/gpu_work.h"
#include "worker_runtime/gpu/cuda_api.h"

namespace ddp::internal {

// Shared by the communicator, which destroys the executable before NCCL's communicator goes, the
// handle of the caller, and the replays in flight, so that the events in it are not given back to
// the pool before.
struct NcclGraph {
  NcclGraph(CudaStream on, std::thread::id by) : stream(on), thread(by) {}

  const CudaStream stream;       // of the caller
  const std::thread::id thread;  // that captures

  // Guarded by the communicator's mutex_ until EndCapture() finds nothing left to enqueue. From
  // then on nobody changes the list, nor the status but EndCapture(), and they are read without.
  std::deque<std::shared_ptr<GpuOperation>> operations;
  absl::Status status;  // of the capture

  uint64_t newest_replay = 0;  // its sequence number; guarded by the communicator's mutex_

  CudaGraphExec executable = nullptr;  // guarded by nccl_mutex_; null once destroyed
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_GRAPH_H_
