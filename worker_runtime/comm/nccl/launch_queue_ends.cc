// The part of LaunchQueue that finds out what has ended, or ends it. The driver may not answer: it
// is asked without a lock.
#include <thread>
#include <utility>

#include "worker_runtime/comm/nccl/launch_queue.h"
#include "worker_runtime/gpu/relaxed_capture.h"

namespace ddp::internal {
namespace {

// A program computes on one stream or two: the last 8 are enough.
constexpr size_t kMostCallers = 8;

}  // namespace

LaunchQueue::Head LaunchQueue::HeadInFlight() const {
  const std::lock_guard lock(mutex_);
  // The thread that captures may ask the device nothing; the watchdog's side thread does.
  if (capture_ != nullptr && capture_->thread == std::this_thread::get_id()) return {};
  if (in_flight_.empty()) return {};
  return {.operation = in_flight_.front(), .graph = in_flight_.front()->graph};
}

std::vector<CudaStream> LaunchQueue::callers() const {
  const std::lock_guard lock(mutex_);
  return callers_;
}

void LaunchQueue::NoteCaller(CudaStream stream) {
  if (stream == stream_) return;
  const std::lock_guard lock(mutex_);
  std::erase(callers_, stream);
  if (callers_.size() == kMostCallers) callers_.erase(callers_.begin());
  callers_.push_back(stream);
}

void LaunchQueue::Retire() {
  if (absl::Status status = RetireDone(); !status.ok()) options_.on_failure(status);
}

absl::Status LaunchQueue::RetireDone() {
  const CurrentDevice current(device_);
  if (!current.status().ok()) return current.status();
  const RelaxedCapture relaxed(device_.api());
  while (true) {
    const Head head = HeadInFlight();
    if (head.operation == nullptr) return absl::OkStatus();
    const CudaResult result = device_.api().cuEventQuery(head.operation->ended);
    if (result == kCudaErrorNotReady) return absl::OkStatus();
    if (result != kCudaSuccess) {
      return CudaStatus(device_.api(), Describe(head.operation->op).c_str(), result);
    }
    RetireHead(head);
  }
}

// REQUIRES: it has ended on the device.
void LaunchQueue::RetireHead(const Head& head) {
  GpuOperation& operation = *head.operation;
  const Moments moments{.issued = clock_.TimeOf(operation.issued),
                        .started = clock_.TimeOf(operation.started),
                        .ended = clock_.TimeOf(operation.ended)};
  std::vector<Moments> captured;
  if (head.graph != nullptr) captured = MomentsIn(*head.graph);
  {
    const std::lock_guard lock(mutex_);
    // Somebody else was quicker, or the group has failed.
    if (in_flight_.empty() || in_flight_.front() != head.operation) return;
    operation.moments = moments;
    // Once the next replay is launched, the events may tell its times.
    if (head.graph != nullptr && head.graph->newest_replay == operation.op.sequence) {
      for (size_t i = 0; i < captured.size(); ++i) head.graph->operations[i]->moments = captured[i];
    }
    operation.graph = nullptr;
    operation.phase = GpuOperation::Phase::kDone;
    recorder_.Ran(operation.op.sequence, moments.started, moments.ended);
    last_done_ = operation.op;
    in_flight_.pop_front();
  }
  clock_.MoveOn({.event = operation.ended, .at = moments.ended, .owner = head.operation});
  changed_.notify_all();
}

// Of the newest replay, which has ended. The events are the same in each.
std::vector<LaunchQueue::Moments> LaunchQueue::MomentsIn(const NcclGraph& graph) const {
  std::vector<Moments> all;
  for (const State& operation : graph.operations) {
    all.push_back({.issued = clock_.TimeOf(operation->issued_time),
                   .started = clock_.TimeOf(operation->started),
                   .ended = clock_.TimeOf(operation->ended_time)});
  }
  return all;
}

absl::Status LaunchQueue::AskDriver() {
  if (absl::Status status = RetireDone(); !status.ok()) return status;
  const Head head = HeadInFlight();
  const CurrentDevice current(device_);
  const RelaxedCapture relaxed(device_.api());
  const CudaEvent asked = head.operation != nullptr ? head.operation->started : pulse_->ended;
  const bool has_happened = device_.api().cuEventQuery(asked) == kCudaSuccess;
  const std::lock_guard lock(mutex_);
  if (head.operation != nullptr) head.operation->has_started = has_happened;
  return absl::OkStatus();
}

absl::Status LaunchQueue::AskNccl() {
  const std::unique_lock nccl(nccl_mutex_, std::try_to_lock);
  if (!nccl.owns_lock() || communication_ == nullptr || !communication_->is_open()) {
    return absl::OkStatus();
  }
  return communication_->Explain("asynchronous error", communication_->AsyncError());
}

LaunchQueue::State LaunchQueue::First() const {
  const std::lock_guard lock(mutex_);
  return in_flight_.empty() ? launching_ : in_flight_.front();
}

// A captured one may be waiting as well, and its events are not to be asked.
bool LaunchQueue::HasArrived(const GpuOperation& operation) const {
  const std::lock_guard lock(mutex_);
  if (operation.phase == GpuOperation::Phase::kLaunching) return operation.is_with_nccl;
  return operation.is_captured || operation.has_started;
}

Op LaunchQueue::last_done() const {
  const std::lock_guard lock(mutex_);
  return last_done_;
}

bool LaunchQueue::AwaitIdle(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, patience,
                           [this] { return in_flight_.empty() && launching_ == nullptr; });
}

// REQUIRES: mutex_.
std::deque<LaunchQueue::State> LaunchQueue::Unfinished() const {
  std::deque<State> all = in_flight_;
  if (launching_ != nullptr) all.push_back(launching_);
  return all;
}

std::string LaunchQueue::RecordFailure() {
  const std::lock_guard lock(mutex_);
  for (const State& state : Unfinished()) {
    recorder_.Changed(state->op.sequence, FlightState::kFailed, Clock::now());
  }
  return recorder_.ToJson();
}

bool LaunchQueue::End(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  if (!error_.ok()) return false;
  error_ = status;
  const Clock::time_point now = Clock::now();
  for (const State& state : Unfinished()) {
    recorder_.Changed(state->op.sequence, FlightState::kFailed, now);
    state->status = status;
    state->phase = GpuOperation::Phase::kDone;
    state->moments = {.issued = now, .started = now, .ended = now};
  }
  in_flight_.clear();
  launching_ = nullptr;
  pool_->Abandon();
  changed_.notify_all();
  return true;
}

bool LaunchQueue::Close() {
  const std::lock_guard lock(mutex_);
  if (!error_.ok()) return false;
  error_ = absl::FailedPreconditionError("the process group was shut down");
  return true;
}

absl::Status LaunchQueue::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

std::chrono::milliseconds LaunchQueue::timeout() const {
  const std::lock_guard lock(mutex_);
  return timeout_;
}

void LaunchQueue::SetTimeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  timeout_ = timeout;
}

void LaunchQueue::SetCapture(std::shared_ptr<NcclGraph> graph) {
  const std::lock_guard lock(mutex_);
  capture_ = std::move(graph);
}

bool LaunchQueue::is_capturing() const {
  const std::lock_guard lock(mutex_);
  return capture_ != nullptr;
}

uint64_t LaunchQueue::last_sequence() const {
  const std::lock_guard lock(mutex_);
  return last_sequence_;
}

void LaunchQueue::Rewind(uint64_t last) {
  const std::lock_guard lock(mutex_);
  last_sequence_ = last;
  recorder_.Forget(last);
}

}  // namespace ddp::internal
