// One operation on a GPU, and the caller's handle to it.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_GPU_WORK_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_GPU_WORK_H_

#include <memory>

#include "ddp/communicator.h"
#include "worker_runtime/comm/op.h"
#include "worker_runtime/gpu/event_pool.h"

namespace ddp::internal {

class LaunchQueue;
struct NcclGraph;

// Shared by the queue and the handle, whichever lives longer; gives its events back. The queue's
// mutex guards what changes once it has its number.
struct GpuOperation {
  enum class Phase { kLaunching, kEnqueued, kDone };

  explicit GpuOperation(std::shared_ptr<EventPool> events) : pool(std::move(events)) {}
  ~GpuOperation();
  GpuOperation(const GpuOperation&) = delete;
  GpuOperation& operator=(const GpuOperation&) = delete;

  // Those that the operation needs. REQUIRES: is_captured is set; the device is current.
  absl::Status TakeEvents();
  // How `started` and the times of a captured operation are recorded.
  unsigned time_flags() const {
    return is_captured ? kCudaEventRecordExternal : kCudaEventRecordDefault;
  }

  const std::shared_ptr<EventPool> pool;
  Op op;
  // Of a replay: what runs. It lives until the replay is over, and with it the events in it.
  std::shared_ptr<NcclGraph> graph;
  bool is_captured = false;     // part of a graph
  CudaEvent issued = nullptr;   // on the caller's stream; of a replay on ours, what it waits for
  CudaEvent started = nullptr;  // on ours; of a replay on the caller's
  CudaEvent ended = nullptr;
  // An event recorded in a capture is an edge of the graph, without a time, and asking it costs the
  // capture. So captured operations have others for times, which each replay records anew:
  // `started` is one of these.
  CudaEvent issued_time = nullptr;
  CudaEvent ended_time = nullptr;

  Phase phase = Phase::kLaunching;
  absl::Status status;
  bool is_with_nccl = false;  // NCCL has been called
  bool has_started = false;   // all before it on our stream is done, as the driver has said
  // From kDone on. When captured: of the last replay that told, zero before it.
  struct Moments {
    Clock::time_point issued{}, started{}, ended{};
  };
  Moments moments;
};

class GpuWork final : public Work {
 public:
  GpuWork(LaunchQueue& owner, std::shared_ptr<GpuOperation> operation)
      : owner_(owner), operation_(std::move(operation)) {}

  absl::Status Wait() override;
  absl::Status WaitOn(Stream stream) override;
  bool IsDone() const override;
  bool WaitFor(std::chrono::milliseconds patience) const override;
  bool was_refused() const override;
  Clock::time_point issued_at() const override { return moments().issued; }
  Clock::time_point started_at() const override { return moments().started; }
  Clock::time_point ended_at() const override { return moments().ended; }

 private:
  bool IsInPresentCapture() const;
  GpuOperation::Moments moments() const;

  LaunchQueue& owner_;
  const std::shared_ptr<GpuOperation> operation_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_GPU_WORK_H_
