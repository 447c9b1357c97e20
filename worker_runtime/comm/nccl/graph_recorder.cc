#include "worker_runtime/comm/nccl/graph_recorder.h"

#include <chrono>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/fnv1a.h"
#include "worker_runtime/comm/op_record.h"

namespace ddp::internal {
namespace {

constexpr std::chrono::microseconds kLook(100);

}  // namespace

// What the caller holds.
class NcclGraphHandle final : public CapturedGraph {
 public:
  NcclGraphHandle(GraphRecorder& owner, std::shared_ptr<NcclGraph> graph)
      : owner_(owner), graph_(std::move(graph)) {
    ddprun::Fnv1a hash;
    for (const auto& operation : graph_->operations) {
      OpRecord record = SharedRecordOf(operation->op);
      record.sequence -= graph_->operations.front()->op.sequence;
      hash.Add(&record, sizeof(record));
    }
    fingerprint_ = hash.value();
  }
  ~NcclGraphHandle() override { owner_.Forget(graph_); }

  absl::Status Replay() override { return owner_.queue_.Replay(graph_); }
  uint64_t operation_count() const override { return graph_->operations.size(); }
  uint64_t fingerprint() const override { return fingerprint_; }

 private:
  GraphRecorder& owner_;
  const std::shared_ptr<NcclGraph> graph_;
  uint64_t fingerprint_;
};

absl::Status GraphRecorder::BeginCapture(Stream on) {
  const LaunchQueue::Turn turn(queue_);
  const CurrentDevice current(device_);
  if (!current.status().ok()) return current.status();
  const CudaApi& api = device_.api();
  const CudaStream stream = static_cast<CudaStream>(on);
  if (is_capturing()) {
    return absl::FailedPreconditionError("another step of this group is being captured");
  }
  if (absl::Status status = queue_.error(); !status.ok()) return status;
  sequence_before_capture_ = queue_.last_sequence();
  int state = kCudaCaptureStatusNone;
  CudaResult result = api.cuStreamIsCapturing(stream, &state);
  if (result != kCudaSuccess) return CudaStatus(api, "cuStreamIsCapturing", result);
  if (state != kCudaCaptureStatusNone) {
    return absl::FailedPreconditionError("the stream is being captured already");
  }
  // The watchdog and NCCL's threads go on asking the device: only this thread is bound by it.
  result = api.cuStreamBeginCapture(stream, kCudaCaptureModeThreadLocal);
  if (result != kCudaSuccess) return CudaStatus(api, "cuStreamBeginCapture", result);
  capture_ = std::make_shared<NcclGraph>(stream, std::this_thread::get_id());
  queue_.SetCapture(capture_);
  for (const auto& [owner, note] : on_begin) note();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CapturedGraph>> GraphRecorder::EndCapture() {
  DDP_CHECK(capture_ != nullptr);
  const LaunchQueue::Turn turn(queue_);
  const std::shared_ptr<NcclGraph> graph = std::exchange(capture_, nullptr);
  const CurrentDevice current(device_);
  graph->status.Update(queue_.error());
  graph->status.Update(current.status());
  graph->status.Update(Instantiate(*graph));
  queue_.SetCapture(nullptr);
  if (!graph->status.ok()) return graph->status;
  // Whoever aborts NCCL meanwhile may hold the mutex, and NCCL waits for a graph that it cannot
  // know.
  std::unique_lock nccl = queue_.TryLockNccl(kLook);
  while (!nccl.owns_lock() && queue_.error().ok()) nccl = queue_.TryLockNccl(kLook);
  if (absl::Status status = queue_.error(); !status.ok()) {
    graph->Destroy(device_.api());
    return status;
  }
  graphs_.push_back(graph);
  return std::make_unique<NcclGraphHandle>(*this, graph);
}

// Ends the capture in any case.
absl::Status GraphRecorder::Instantiate(NcclGraph& graph) const {
  const CudaApi& api = device_.api();
  // What the step does not wait for belongs to the graph as well. In a capture that is lost this
  // fails, and so does its end.
  if (!graph.operations.empty()) {
    (void)api.cuStreamWaitEvent(graph.stream, graph.operations.back()->ended, 0);
  }
  CudaGraph recorded = nullptr;
  CudaResult result = api.cuStreamEndCapture(graph.stream, &recorded);
  if (result != kCudaSuccess) {
    return absl::FailedPreconditionError(absl::StrCat(
        kLostCapture, " (", CudaStatus(api, "cuStreamEndCapture", result).message(), ")"));
  }
  if (!graph.status.ok()) {
    api.cuGraphDestroy(recorded);
    return graph.status;
  }
  result = api.cuGraphInstantiateWithFlags(&graph.executable, recorded, 0);
  api.cuGraphDestroy(recorded);
  return CudaStatus(api, "cuGraphInstantiateWithFlags", result);
}

void GraphRecorder::Discard() {
  DDP_CHECK(capture_ == nullptr);
  queue_.Rewind(sequence_before_capture_);
  for (const auto& [owner, forget] : on_discard) forget();
}

void GraphRecorder::Forget(const std::shared_ptr<NcclGraph>& graph) {
  const CurrentDevice current(device_);
  const std::lock_guard nccl(queue_.nccl_mutex());
  std::erase(graphs_, graph);
  // A replay under way goes on; the driver frees what it needs afterwards.
  graph->Destroy(device_.api());
}

}  // namespace ddp::internal
