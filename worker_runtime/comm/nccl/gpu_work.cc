#include "worker_runtime/comm/nccl/gpu_work.h"

#include <algorithm>
#include <chrono>

#include "worker_runtime/comm/nccl/launch_queue.h"

namespace ddp::internal {
namespace {

// How often a host that waits for a device looks; the driver's own wait has no deadline.
constexpr std::chrono::microseconds kFirstLook(20);
constexpr std::chrono::microseconds kLastLook(500);

}  // namespace

GpuOperation::~GpuOperation() {
  for (CudaEvent event : {issued, started, ended, issued_time, ended_time}) {
    if (event != nullptr) pool->GiveBack(event);
  }
}

absl::Status GpuOperation::TakeEvents() {
  for (CudaEvent* event : {&issued, &started, &ended, &issued_time, &ended_time}) {
    if (!is_captured && (event == &issued_time || event == &ended_time)) continue;
    const absl::StatusOr<CudaEvent> taken = pool->Take();
    if (!taken.ok()) return taken.status();
    *event = *taken;
  }
  return absl::OkStatus();
}

// Ends: the watchdog fails what is over its timeout.
absl::Status GpuWork::Wait() {
  std::chrono::microseconds look = kFirstLook;
  std::unique_lock lock(owner_.mutex_);
  if (operation_->is_captured && operation_->status.ok()) {
    return absl::FailedPreconditionError(
        Describe(operation_->op) +
        " is part of a graph: nothing runs before its replay, and then what is behind it on the "
        "stream comes after this operation");
  }
  while (operation_->phase != GpuOperation::Phase::kDone) {
    lock.unlock();
    owner_.Retire();
    lock.lock();
    if (operation_->phase == GpuOperation::Phase::kDone) break;
    owner_.changed_.wait_for(lock, look);
    look = std::min(2 * look, kLastLook);
  }
  return operation_->status;
}

absl::Status GpuWork::WaitOn(Stream stream) {
  bool is_done = false;
  {
    const std::lock_guard lock(owner_.mutex_);
    if (!operation_->status.ok()) return operation_->status;
    if (operation_->is_captured && !IsInPresentCapture()) {
      return absl::FailedPreconditionError(
          Describe(operation_->op) +
          " is part of a graph: what is behind a replay on its stream comes after it");
    }
    is_done = operation_->phase == GpuOperation::Phase::kDone;
  }
  owner_.NoteCaller(static_cast<CudaStream>(stream));
  if (is_done) return absl::OkStatus();
  const CurrentDevice current(owner_.device_);
  if (!current.status().ok()) return current.status();
  const CudaApi& api = owner_.device_.api();
  return CudaStatus(api, "cuStreamWaitEvent",
                    api.cuStreamWaitEvent(static_cast<CudaStream>(stream), operation_->ended, 0));
}

// REQUIRES: the queue's mutex.
bool GpuWork::IsInPresentCapture() const {
  if (owner_.capture_ == nullptr) return false;
  const auto& operations = owner_.capture_->operations;
  return std::find(operations.rbegin(), operations.rend(), operation_) != operations.rend();
}

bool GpuWork::IsDone() const {
  owner_.Retire();
  const std::lock_guard lock(owner_.mutex_);
  if (operation_->is_captured && operation_->status.ok()) {
    return operation_->moments.ended != Clock::time_point();
  }
  return operation_->phase == GpuOperation::Phase::kDone;
}

bool GpuWork::WaitFor(std::chrono::milliseconds patience) const {
  const Clock::time_point end = Clock::now() + patience;
  std::chrono::microseconds look = kFirstLook;
  while (!IsDone()) {
    if (Clock::now() >= end) return false;
    std::unique_lock lock(owner_.mutex_);
    owner_.changed_.wait_for(lock, look);
    look = std::min(2 * look, kLastLook);
  }
  return true;
}

bool GpuWork::was_refused() const {
  const std::lock_guard lock(owner_.mutex_);
  return operation_->op.sequence == 0;
}

GpuOperation::Moments GpuWork::moments() const {
  const std::lock_guard lock(owner_.mutex_);
  return operation_->moments;
}

}  // namespace ddp::internal
