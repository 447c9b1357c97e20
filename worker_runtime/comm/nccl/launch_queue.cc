#include "worker_runtime/comm/nccl/launch_queue.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/nccl/op_memory.h"

namespace ddp::internal {
namespace {

// Operations in flight from which on a replay waits for one to end: an abort of NCCL waits for all
// replays that were launched, each of which is a step, and has 2 s. More than two or three hide
// nothing.
constexpr size_t kMaxBeforeReplay = 4;
constexpr std::chrono::microseconds kLook(200);

}  // namespace

absl::Status Prefixed(const Op& op, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(Describe(op), ": ", status.message()));
}

LaunchQueue::LaunchQueue(const Device& device, NcclCommunication* communication, Options options)
    : device_(device),
      communication_(communication),
      options_(std::move(options)),
      pool_(std::make_shared<EventPool>(device)),
      recorder_(options_.rank, options_.world_size, communication != nullptr ? "nccl" : "local",
                options_.label),
      clock_(device.api()),
      timeout_(options_.timeout) {}

absl::Status LaunchQueue::Start() {
  const CurrentDevice current(device_);
  if (!current.status().ok()) return current.status();
  const CudaApi& api = device_.api();
  int greatest = 0;
  CudaResult result = api.cuCtxGetStreamPriorityRange(nullptr, &greatest);
  if (result != kCudaSuccess) return CudaStatus(api, "cuCtxGetStreamPriorityRange", result);
  result = api.cuStreamCreateWithPriority(&stream_, kCudaStreamNonBlocking,
                                          options_.is_high_priority ? greatest : 0);
  if (result != kCudaSuccess) return CudaStatus(api, "cuStreamCreateWithPriority", result);
  result = api.cuMemAlloc(&barrier_word_, sizeof(int32_t));
  if (result != kCudaSuccess) return CudaStatus(api, "cuMemAlloc", result);
  result = api.cuMemsetD8Async(barrier_word_, 0, sizeof(int32_t), stream_);
  if (result != kCudaSuccess) return CudaStatus(api, "cuMemsetD8Async", result);

  auto anchor = std::make_shared<GpuOperation>(pool_);
  absl::StatusOr<CudaEvent> event = pool_->Take();
  if (!event.ok()) return event.status();
  anchor->ended = *event;
  result = api.cuEventRecord(anchor->ended, stream_);
  if (result != kCudaSuccess) return CudaStatus(api, "cuEventRecord", result);
  result = api.cuEventSynchronize(anchor->ended);
  if (result != kCudaSuccess) return CudaStatus(api, "cuEventSynchronize", result);
  clock_.Set({.event = anchor->ended, .at = Clock::now(), .owner = anchor});
  pulse_ = std::move(anchor);
  return absl::OkStatus();
}

bool LaunchQueue::Release(std::chrono::milliseconds patience) {
  clock_.Set({});
  pulse_ = nullptr;
  // What is left on the device is the caller's own, for which the driver may wait all the same.
  const auto free = [&api = device_.api(), word = barrier_word_] {
    return CudaStatus(api, "cuMemFree", api.cuMemFree(word));
  };
  if (!device_.Free(free, patience).ok()) return false;
  pool_->Close();
  const CurrentDevice current(device_);
  device_.api().cuStreamDestroy(stream_);
  return true;
}

LaunchQueue::Turn::Turn(LaunchQueue& queue) : queue_(queue) {
  std::unique_lock lock(queue_.mutex_);
  queue_.changed_.wait(lock, [this] { return !queue_.has_turn_; });
  queue_.has_turn_ = true;
}

LaunchQueue::Turn::~Turn() {
  const std::lock_guard lock(queue_.mutex_);
  queue_.has_turn_ = false;
  queue_.changed_.notify_all();
}

bool LaunchQueue::AwaitTurn(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return !has_turn_; });
}

LaunchQueue::State LaunchQueue::SubmitBarrier() {
  CudaStream stream = stream_;
  {
    // Ours joins a capture only with the first operation in it.
    const std::lock_guard lock(mutex_);
    if (capture_ != nullptr) stream = capture_->stream;
  }
  void* const word = reinterpret_cast<void*>(barrier_word_);
  return Submit(
      {.kind = OpKind::kBarrier, .dtype = DType::kInt32, .count = 1, .input = word, .output = word},
      stream);
}

LaunchQueue::State LaunchQueue::Submit(Op op, CudaStream stream) {
  auto operation = std::make_shared<GpuOperation>(pool_);
  operation->op = std::move(op);
  const Turn turn(*this);
  const CurrentDevice current(device_);
  absl::Status prepared = current.status();
  if (prepared.ok()) prepared = Prepare(*operation, stream);
  if (operation->status.ok()) {
    NoteCaller(stream);
    Run(operation, Prefixed(operation->op, prepared));
  } else {
    // Refused, without a number: the next call takes the one that the other ranks are at.
    const std::lock_guard lock(mutex_);
    if (!error_.ok()) operation->status = AfterEnd(error_, "this call");
    operation->phase = GpuOperation::Phase::kDone;
  }
  return operation;
}

// What the caller passed can be used, and from when on. A refusal is the operation's status.
absl::Status LaunchQueue::Prepare(GpuOperation& operation, CudaStream caller) {
  const Op& op = operation.op;
  absl::Status status = CheckArguments(op, options_.rank, options_.world_size);
  if (status.ok() && IsBitwise(op.reduce)) {
    status = absl::InvalidArgumentError(Describe(op) + ": NCCL has no operations on bits");
  }
  if (status.ok()) {
    status = CheckDeviceMemory(device_.api(), op, options_.rank, options_.world_size);
  }
  if (absl::IsInvalidArgument(status)) {
    operation.status = std::move(status);
    return absl::OkStatus();
  }
  if (status.ok()) status = CheckCapture(caller, &operation.is_captured);
  if (status.ok()) status = operation.TakeEvents();
  if (status.ok() && options_.check && !operation.is_captured) status = options_.check(op);
  if (status.ok()) status = RecordIssued(operation, caller);
  return status;
}

// Whether the operation goes into the graph. One that would run at once, or that only this rank
// captures, cannot be what the caller means.
absl::Status LaunchQueue::CheckCapture(CudaStream stream, bool* is_captured) const {
  int state = kCudaCaptureStatusNone;
  const CudaResult result = device_.api().cuStreamIsCapturing(stream, &state);
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

absl::Status LaunchQueue::RecordIssued(const GpuOperation& operation, CudaStream stream) const {
  const CudaApi& api = device_.api();
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

absl::Status LaunchQueue::Replay(const std::shared_ptr<NcclGraph>& graph) {
  auto replay = std::make_shared<GpuOperation>(pool_);
  replay->graph = graph;
  replay->op.kind = OpKind::kReplay;
  replay->op.count = graph->operations.size();
  const Turn turn(*this);
  const CurrentDevice current(device_);
  NoteCaller(graph->stream);
  {
    std::unique_lock lock(mutex_);
    if (error_.ok() && capture_ != nullptr) {
      return absl::FailedPreconditionError("a replay while a step is being captured");
    }
    while (error_.ok() && in_flight_.size() >= kMaxBeforeReplay) {
      lock.unlock();
      Retire();
      lock.lock();
      // Ends: the watchdog fails what is over its timeout.
      if (in_flight_.size() >= kMaxBeforeReplay) changed_.wait_for(lock, kLook);
    }
    if (!error_.ok()) return error_;
  }
  absl::Status prepared = current.status();
  if (prepared.ok()) prepared = replay->TakeEvents();
  if (prepared.ok() && options_.check) prepared = options_.check(replay->op);
  Run(replay, Prefixed(replay->op, prepared));
  const std::lock_guard lock(mutex_);
  return replay->status;
}

// The caller's part of an operation that is not refused, `prepared` as told.
void LaunchQueue::Run(const State& operation, const absl::Status& prepared) {
  if (!prepared.ok()) Fail(prepared);
  if (!Number(operation)) return;
  const absl::Status launched = Prefixed(operation->op, Launch(*operation));
  if (!launched.ok()) Fail(launched);
  const std::lock_guard lock(mutex_);
  launching_ = nullptr;
  changed_.notify_all();
  if (operation->phase == GpuOperation::Phase::kDone) return;  // with the group
  const bool is_captured = operation->is_captured;
  operation->status = launched;
  operation->phase = launched.ok() ? GpuOperation::Phase::kEnqueued : GpuOperation::Phase::kDone;
  recorder_.Changed(operation->op.sequence,
                    !launched.ok() ? FlightState::kFailed
                    : is_captured  ? FlightState::kCaptured
                                   : FlightState::kEnqueued,
                    Clock::now());
  if (launched.ok()) (is_captured ? capture_->operations : in_flight_).push_back(operation);
}

// False: the group, or the capture, has failed.
bool LaunchQueue::Number(const State& operation) {
  const std::lock_guard lock(mutex_);
  Op& op = operation->op;
  op.sequence = last_sequence_ + 1;
  // A graph stands for the numbers of its operations; without any it is one in the record still.
  last_sequence_ += operation->graph == nullptr ? 1 : std::max<uint64_t>(1, op.count);
  op.timeout = timeout_;
  op.deadline = Clock::now() + timeout_;
  operation->status =
      capture_ != nullptr && error_.ok() ? capture_->status : AfterEnd(error_, "this call");
  if (!operation->status.ok()) {
    operation->phase = GpuOperation::Phase::kDone;
    return false;
  }
  // From now on no times are read that this replay may be changing.
  if (operation->graph != nullptr) operation->graph->newest_replay = op.sequence;
  recorder_.Queued(op, Clock::now(), operation->is_captured);
  launching_ = operation;
  return true;
}

// Ends the capture under way, or else the group, over a call that this rank cannot make: the others
// wait for it.
void LaunchQueue::Fail(const absl::Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_.ok()) return;
    // NCCL broken by it is noticed by the watchdog.
    if (capture_ != nullptr) return capture_->status.Update(why);
  }
  options_.on_failure(why);
}

absl::Status LaunchQueue::Launch(GpuOperation& operation) {
  if (operation.graph != nullptr) return LaunchGraph(operation);
  const CudaApi& api = device_.api();
  const Op& op = operation.op;
  CudaResult result = api.cuStreamWaitEvent(stream_, operation.issued, 0);
  if (result != kCudaSuccess) return CudaStatus(api, "cuStreamWaitEvent", result);
  result = api.cuEventRecordWithFlags(operation.started, stream_, operation.time_flags());
  if (result != kCudaSuccess) return CudaStatus(api, "cuEventRecord", result);
  absl::Status status;
  if (communication_ == nullptr) {
    status = Copy(op);
  } else if (op.count > 0) {
    {
      const std::lock_guard lock(mutex_);
      operation.is_with_nccl = true;
    }
    status = CallNccl(op);
  }
  return status.ok() ? RecordEnd(operation) : status;
}

// A group of one: what it gets is what it has.
absl::Status LaunchQueue::Copy(const Op& op) {
  if (op.input == op.output || op.count == 0 || op.input == nullptr || op.output == nullptr) {
    return absl::OkStatus();
  }
  const CudaApi& api = device_.api();
  return CudaStatus(
      api, "cuMemcpyDtoDAsync",
      api.cuMemcpyDtoDAsync(reinterpret_cast<CudaPointer>(op.output),
                            reinterpret_cast<CudaPointer>(op.input), op.bytes(), stream_));
}

// Waits, at the first use of a peer, for that peer. Ends at the latest when the watchdog aborts it.
absl::Status LaunchQueue::CallNccl(const Op& op) {
  const std::lock_guard nccl(nccl_mutex_);
  // Under NCCL's mutex: what is called now is there before an abort, or not at all.
  if (absl::Status status = error(); !status.ok()) return status;
  is_in_nccl_ = true;
  const NcclResult result = communication_->Enqueue(op, stream_);
  is_in_nccl_ = false;
  // An abort that ended the call has left nothing that could be asked.
  if (absl::Status status = error(); !status.ok()) return status;
  return communication_->Explain("enqueue", result);
}

absl::Status LaunchQueue::RecordEnd(const GpuOperation& operation) {
  const CudaApi& api = device_.api();
  CudaResult result = kCudaSuccess;
  // Before the other, which is what joins our stream to the caller's.
  if (operation.is_captured) {
    result = api.cuEventRecordWithFlags(operation.ended_time, stream_, operation.time_flags());
  }
  if (result == kCudaSuccess) result = api.cuEventRecord(operation.ended, stream_);
  return CudaStatus(api, "cuEventRecord", result);
}

// Looks now and then: the thread sanitizer does not see a lock with a deadline (std::timed_mutex).
std::unique_lock<std::mutex> LaunchQueue::TryLockNccl(Clock::duration patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  std::unique_lock nccl(nccl_mutex_, std::try_to_lock);
  while (!nccl.owns_lock() && Clock::now() < deadline) {
    std::this_thread::sleep_for(kLook);
    (void)nccl.try_lock();
  }
  return nccl;
}

// In a graph operations run beside our stream. The two waits put them into one order with those
// that are not captured.
absl::Status LaunchQueue::LaunchGraph(const GpuOperation& replay) {
  const CudaApi& api = device_.api();
  const CudaStream stream = replay.graph->stream;
  const std::lock_guard nccl(nccl_mutex_);
  // As in CallNccl().
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

}  // namespace ddp::internal
