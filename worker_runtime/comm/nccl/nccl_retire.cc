// The part of NcclCommunicator that finds out what has ended. The driver may not answer: it is
// asked without a lock, and by threads of which the watchdog is none.
#include <utility>
#include <vector>

#include "worker_runtime/comm/nccl/nccl_communicator.h"
#include "worker_runtime/gpu/relaxed_capture.h"

namespace ddp::internal {

NcclCommunicator::Head NcclCommunicator::HeadInFlight() const {
  const std::lock_guard lock(mutex_);
  // The thread that captures may ask the device nothing; the side thread does.
  if (capture_ != nullptr && capture_->thread == std::this_thread::get_id()) return {};
  if (in_flight_.empty()) return {};
  return {.operation = in_flight_.front(), .graph = in_flight_.front()->graph};
}

// The first that has not ended, enqueued or not; null: there is none.
NcclCommunicator::State NcclCommunicator::First() const {
  const std::lock_guard lock(mutex_);
  if (!in_flight_.empty()) return in_flight_.front();
  return queue_.empty() ? nullptr : queue_.front();
}

// Takes what has ended out of those in flight.
void NcclCommunicator::Retire() {
  if (absl::Status status = RetireDone(); !status.ok()) FailAll(status);
}

// Likewise; the error is the driver's.
absl::Status NcclCommunicator::RetireDone() {
  const CurrentDevice current(*device_);
  if (!current.status().ok()) return current.status();
  const RelaxedCapture relaxed(device_->api());
  while (true) {
    const Head head = HeadInFlight();
    if (head.operation == nullptr) return absl::OkStatus();
    const CudaResult result = device_->api().cuEventQuery(head.operation->ended);
    if (result == kCudaErrorNotReady) return absl::OkStatus();
    if (result != kCudaSuccess) {
      return CudaStatus(device_->api(), Describe(head.operation->op).c_str(), result);
    }
    if (absl::Status alike = JudgeCalls(*head.operation); !alike.ok()) return alike;
    RetireHead(head);
  }
}

// REQUIRES: it has ended on the device.
absl::Status NcclCommunicator::JudgeCalls(const GpuOperation& operation) {
  if (!operation.is_compared) return absl::OkStatus();
  const std::lock_guard lock(mutex_);
  return comparison_->Judge(operation.op.sequence);
}

// REQUIRES: it has ended on the device.
void NcclCommunicator::RetireHead(const Head& head) {
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

// The side thread's: what has ended, and whether the first that has not has begun. The driver is
// asked in any case, so that whoever waits for this thread knows whether it answers.
void NcclCommunicator::AskDriver() {
  absl::Status status = RetireDone();
  if (status.ok()) {
    const Head head = HeadInFlight();
    const CurrentDevice current(*device_);
    const RelaxedCapture relaxed(device_->api());
    const CudaEvent asked = head.operation != nullptr ? head.operation->started : pulse_->ended;
    const bool has_happened = device_->api().cuEventQuery(asked) == kCudaSuccess;
    const std::lock_guard lock(mutex_);
    if (head.operation != nullptr) head.operation->has_started = has_happened;
  }
  const std::lock_guard lock(mutex_);
  found_.Update(status);
}

}  // namespace ddp::internal
