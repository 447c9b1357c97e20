// One operation on a GPU, and the caller's handle to it.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_GPU_WORK_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_GPU_WORK_H_

#include <memory>

#include "ddp/communicator.h"
#include "worker_runtime/comm/op.h"
#include "worker_runtime/gpu/event_pool.h"

namespace ddp::internal {

class NcclCommunicator;

// Shared by the communicator and the handle, whichever lives longer; gives its events back. The
// communicator's mutex guards what is not const once it is queued.
struct GpuOperation {
  enum class Phase { kQueued, kEnqueued, kDone };

  explicit GpuOperation(std::shared_ptr<EventPool> events) : pool(std::move(events)) {}
  ~GpuOperation();
  GpuOperation(const GpuOperation&) = delete;
  GpuOperation& operator=(const GpuOperation&) = delete;

  const std::shared_ptr<EventPool> pool;
  Op op;
  bool is_captured = false;     // part of a graph: its events tell no times and are not asked
  CudaEvent issued = nullptr;   // on the caller's stream
  CudaEvent started = nullptr;  // on ours; null when captured
  CudaEvent ended = nullptr;

  Phase phase = Phase::kQueued;
  absl::Status status;
  Clock::time_point issued_at{}, started_at{}, ended_at{};  // from kDone on
};

class GpuWork final : public Work {
 public:
  GpuWork(NcclCommunicator& owner, std::shared_ptr<GpuOperation> operation)
      : owner_(owner), operation_(std::move(operation)) {}

  absl::Status Wait() override;
  absl::Status WaitOn(Stream stream) override;
  bool IsDone() const override;
  Clock::time_point issued_at() const override;
  Clock::time_point started_at() const override;
  Clock::time_point ended_at() const override;

 private:
  NcclCommunicator& owner_;
  const std::shared_ptr<GpuOperation> operation_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_GPU_WORK_H_
