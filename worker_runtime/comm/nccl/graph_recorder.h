// Captures a group's operations into graphs, and replays them.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_GRAPH_RECORDER_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_GRAPH_RECORDER_H_

#include <memory>
#include <vector>

#include "worker_runtime/comm/graph_capture.h"
#include "worker_runtime/comm/nccl/launch_queue.h"
#include "worker_runtime/comm/nccl/nccl_graph.h"

namespace ddp::internal {

// The thread that calls the communicator, but for TakeGraphs().
class GraphRecorder final : public GraphCapture {
 public:
  // Both outlive this.
  GraphRecorder(const Device& device, LaunchQueue& queue) : device_(device), queue_(queue) {}

  absl::Status BeginCapture(Stream stream) override;
  absl::StatusOr<std::unique_ptr<CapturedGraph>> EndCapture() override;
  void Discard() override;
  bool is_capturing() const override { return queue_.is_capturing(); }

  // NCCL's communicator, whether aborted or destroyed, waits until no graph holds its operations:
  // those that can be launched, to be destroyed before. REQUIRES: nccl_mutex(), or nobody else is
  // left.
  Graphs TakeGraphs() { return std::exchange(graphs_, {}); }

 private:
  friend class NcclGraphHandle;
  absl::Status Instantiate(NcclGraph& graph) const;
  void Forget(const std::shared_ptr<NcclGraph>& graph);

  const Device& device_;
  LaunchQueue& queue_;
  Graphs graphs_;                       // guarded by the queue's nccl_mutex()
  std::shared_ptr<NcclGraph> capture_;  // null: nothing is captured now
  uint64_t sequence_before_capture_ = 0;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_GRAPH_RECORDER_H_
