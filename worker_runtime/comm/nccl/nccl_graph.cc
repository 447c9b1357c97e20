// The part of NcclCommunicator that captures operations into graphs and replays them.
#include "worker_runtime/comm/nccl/nccl_graph.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/fnv1a.h"
#include "worker_runtime/comm/nccl/nccl_communicator.h"
#include "worker_runtime/comm/op_record.h"

namespace ddp::internal {
namespace {

// Replays in flight from which on a launch waits for one to end: an abort of NCCL waits for all
// that were launched, each of which is a step, and has 2 s. More than two or three hide nothing.
constexpr size_t kMaxReplays = 4;
constexpr std::chrono::microseconds kLook(200);

constexpr char kLostCapture[] =
    "the driver gave the capture up: something in the step waited for the device or asked it "
    "something, allocated or freed memory, or used a stream that did not wait for this one";

}  // namespace

// What the caller holds.
class NcclGraphHandle final : public CapturedGraph {
 public:
  NcclGraphHandle(NcclCommunicator& owner, std::shared_ptr<NcclGraph> graph)
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

  absl::Status Replay() override { return owner_.Replay(graph_); }
  uint64_t operation_count() const override { return graph_->operations.size(); }
  uint64_t fingerprint() const override { return fingerprint_; }

 private:
  NcclCommunicator& owner_;
  const std::shared_ptr<NcclGraph> graph_;
  uint64_t fingerprint_;
};

bool NcclCommunicator::is_capturing() const {
  const std::lock_guard lock(mutex_);
  return capture_ != nullptr;
}

uint64_t NcclCommunicator::discarded_count() const {
  const std::lock_guard lock(mutex_);
  return discarded_count_;
}

// Until nothing waits to be enqueued: the host waits for that alone. Ends: what is ahead is
// enqueued, or fails by its timeout.
absl::Status NcclCommunicator::AwaitEnqueued(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return queue_.empty() || !error_.ok(); });
  return error_;
}

absl::Status NcclCommunicator::BeginCapture(Stream on) {
  const CurrentDevice current(*device_);
  if (!current.status().ok()) return current.status();
  const CudaApi& api = device_->api();
  const CudaStream stream = static_cast<CudaStream>(on);
  {
    std::unique_lock lock(mutex_);
    if (capture_ != nullptr) {
      return absl::FailedPreconditionError("another step of this group is being captured");
    }
    sequence_before_capture_ = last_sequence_;
    if (comparison_ != nullptr) comparison_->Mark();
    if (absl::Status status = AwaitEnqueued(lock); !status.ok()) return status;
  }
  int state = kCudaCaptureStatusNone;
  CudaResult result = api.cuStreamIsCapturing(stream, &state);
  if (result != kCudaSuccess) return CudaStatus(api, "cuStreamIsCapturing", result);
  if (state != kCudaCaptureStatusNone) {
    return absl::FailedPreconditionError("the stream is being captured already");
  }
  // The watchdog and NCCL's threads go on asking the device: only this thread is bound by it.
  result = api.cuStreamBeginCapture(stream, kCudaCaptureModeThreadLocal);
  if (result != kCudaSuccess) return CudaStatus(api, "cuStreamBeginCapture", result);
  const std::lock_guard lock(mutex_);
  capture_ = std::make_shared<NcclGraph>(stream, std::this_thread::get_id());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CapturedGraph>> NcclCommunicator::EndCapture() {
  const CurrentDevice current(*device_);
  std::shared_ptr<NcclGraph> graph;
  {
    std::unique_lock lock(mutex_);
    DDP_CHECK(capture_ != nullptr);
    graph = capture_;
    graph->status.Update(AwaitEnqueued(lock));
    graph->status.Update(current.status());
  }
  const absl::Status instantiated = Instantiate(*graph);
  {
    const std::lock_guard lock(mutex_);
    capture_ = nullptr;
    graph->status.Update(instantiated);
    if (!graph->status.ok()) return graph->status;
  }
  const std::lock_guard nccl(nccl_mutex_);
  graphs_.push_back(graph);
  return std::make_unique<NcclGraphHandle>(*this, std::move(graph));
}

// Ends the capture in any case.
absl::Status NcclCommunicator::Instantiate(NcclGraph& graph) {
  const CudaApi& api = device_->api();
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

void NcclCommunicator::Discard() {
  const std::lock_guard lock(mutex_);
  DDP_CHECK(capture_ == nullptr);
  last_sequence_ = sequence_before_capture_;
  if (comparison_ != nullptr) comparison_->Rewind();
  recorder_.Forget(last_sequence_);
  ++discarded_count_;
}

// Whether the operation goes into the graph. One that would run at once, or that only this rank
// captures, cannot be what the caller means.
absl::Status NcclCommunicator::CheckCapture(Stream stream, bool* is_captured) const {
  int state = kCudaCaptureStatusNone;
  const CudaResult result =
      device_->api().cuStreamIsCapturing(static_cast<CudaStream>(stream), &state);
  // The record says what is wrong with the stream.
  if (result != kCudaSuccess) return absl::OkStatus();
  *is_captured = state == kCudaCaptureStatusActive;
  if (state == kCudaCaptureStatusInvalidated) return absl::FailedPreconditionError(kLostCapture);
  if (*is_captured == is_capturing()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      *is_captured ? "its stream is being captured, but not by ddp::StepGraph, which sees to it "
                     "that all ranks capture or none"
                   : "its stream does not belong to the step that is being captured");
}

absl::Status NcclCommunicator::RecordIssued(const GpuOperation& operation,
                                            CudaStream stream) const {
  const CudaApi& api = device_->api();
  CudaResult result = kCudaSuccess;
  if (operation.is_captured) {
    result = api.cuEventRecordWithFlags(operation.issued_time, stream, operation.time_flags());
  }
  if (result == kCudaSuccess) result = api.cuEventRecord(operation.issued, stream);
  if (result == kCudaSuccess) return absl::OkStatus();
  const bool is_of_stream = result == kCudaErrorInvalidHandle ||
                            result == kCudaErrorInvalidContext || result == kCudaErrorInvalidValue;
  // Otherwise whatever the device ran before has failed.
  if (!is_of_stream) return CudaStatus(api, "record an event behind its data", result);
  return absl::InvalidArgumentError(
      absl::StrCat("the stream on which its data was announced cannot be used (was it destroyed, "
                   "or made on another GPU?): ",
                   CudaStatus(api, "cuEventRecord", result).message()));
}

absl::Status NcclCommunicator::Replay(const std::shared_ptr<NcclGraph>& graph) {
  const CurrentDevice current(*device_);
  auto replay = std::make_shared<GpuOperation>(pool_);
  replay->graph = graph;
  replay->op.kind = OpKind::kReplay;
  absl::Status status = current.status();
  if (status.ok()) status = replay->TakeEvents();
  {
    std::unique_lock lock(mutex_);
    while (error_.ok() && in_flight_.size() >= kMaxReplays) {
      lock.unlock();
      Retire();
      lock.lock();
      // Ends: the watchdog fails what is over its timeout.
      if (in_flight_.size() >= kMaxReplays) changed_.wait_for(lock, kLook);
    }
    if (absl::Status failed = AwaitEnqueued(lock); !failed.ok()) return failed;
    if (capture_ != nullptr) {
      return absl::FailedPreconditionError("a replay while a step is being captured");
    }
    replay->op.count = graph->operations.size();
    replay->op.sequence = last_sequence_ + 1;
    // A graph without operations is one in the record all the same.
    last_sequence_ += std::max<uint64_t>(1, replay->op.count);
    replay->op.timeout = timeout_;
    replay->op.deadline = Clock::now() + timeout_;
    // From now on no times are read that this replay may be changing.
    graph->newest_replay = replay->op.sequence;
    if (comparison_ != nullptr) comparison_->Add(replay->op, /*is_captured=*/true);
    recorder_.Queued(replay->op, Clock::now());
  }
  if (status.ok()) status = Launch(*replay);
  if (!status.ok()) {
    recorder_.Changed(replay->op.sequence, FlightState::kFailed, Clock::now());
    FailCaptureOrGroup(
        absl::Status(status.code(), absl::StrCat(Describe(replay->op), ": ", status.message())));
    return error();
  }
  const std::lock_guard lock(mutex_);
  if (!error_.ok()) {
    recorder_.Changed(replay->op.sequence, FlightState::kFailed, Clock::now());
    return error_;
  }
  replay->phase = GpuOperation::Phase::kEnqueued;
  recorder_.Changed(replay->op.sequence, FlightState::kEnqueued, Clock::now());
  in_flight_.push_back(std::move(replay));
  return absl::OkStatus();
}

// In a graph operations run beside our stream. The two waits put them into one order with those
// that are not captured.
absl::Status NcclCommunicator::Launch(const GpuOperation& replay) {
  const CudaApi& api = device_->api();
  const CudaStream stream = replay.graph->stream;
  const std::lock_guard nccl(nccl_mutex_);
  // Under NCCL's mutex: what is launched now is there before an abort, or not at all.
  if (absl::Status status = error(); !status.ok()) return status;
  const std::pair<const char*, std::function<CudaResult()>> calls[] = {
      {"cuEventRecord", [&] { return api.cuEventRecord(replay.issued, stream_); }},
      {"cuStreamWaitEvent", [&] { return api.cuStreamWaitEvent(stream, replay.issued, 0); }},
      {"cuEventRecord", [&] { return api.cuEventRecord(replay.started, stream); }},
      {"cuGraphLaunch", [&] { return api.cuGraphLaunch(replay.graph->executable, stream); }},
      {"cuEventRecord", [&] { return api.cuEventRecord(replay.ended, stream); }},
      {"cuStreamWaitEvent", [&] { return api.cuStreamWaitEvent(stream_, replay.ended, 0); }},
  };
  for (const auto& [name, call] : calls) {
    const CudaResult result = call();
    if (result != kCudaSuccess) return CudaStatus(api, name, result);
  }
  return absl::OkStatus();
}

// Of the newest replay, which has ended. The events are the same in each.
std::vector<NcclCommunicator::Moments> NcclCommunicator::MomentsIn(const NcclGraph& graph) const {
  std::vector<Moments> all;
  for (const State& operation : graph.operations) {
    all.push_back({.issued = clock_.TimeOf(operation->issued_time),
                   .started = clock_.TimeOf(operation->started),
                   .ended = clock_.TimeOf(operation->ended_time)});
  }
  return all;
}

void NcclCommunicator::Forget(const std::shared_ptr<NcclGraph>& graph) {
  const CurrentDevice current(*device_);
  const std::lock_guard nccl(nccl_mutex_);
  graphs_.erase(std::remove(graphs_.begin(), graphs_.end(), graph), graphs_.end());
  // A replay under way goes on; the driver frees what it needs afterwards.
  CudaGraphExec executable = std::exchange(graph->executable, nullptr);
  if (executable != nullptr) device_->api().cuGraphExecDestroy(executable);
}

// NCCL's communicator, whether aborted or destroyed, waits until no graph holds its operations.
// REQUIRES: nccl_mutex_, or nobody else is left.
void NcclCommunicator::DestroyGraphs(const CudaApi& api, const Graphs& graphs) {
  for (const auto& graph : graphs) {
    CudaGraphExec executable = std::exchange(graph->executable, nullptr);
    if (executable != nullptr) api.cuGraphExecDestroy(executable);
  }
}

}  // namespace ddp::internal
