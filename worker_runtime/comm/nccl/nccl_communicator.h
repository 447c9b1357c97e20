// Communicator over NCCL: its own stream, asynchronous work, and an end for every hang.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_COMMUNICATOR_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_COMMUNICATOR_H_

#include <functional>
#include <memory>
#include <string>

#include "ddp/communicator.h"
#include "worker_runtime/comm/failure_board.h"
#include "worker_runtime/comm/group_communicator.h"
#include "worker_runtime/comm/nccl/device_arithmetic.h"
#include "worker_runtime/comm/nccl/gpu_timer.h"
#include "worker_runtime/comm/nccl/graph_recorder.h"
#include "worker_runtime/comm/nccl/launch_queue.h"
#include "worker_runtime/comm/nccl/nccl_communication.h"
#include "worker_runtime/comm/nccl/watchdog.h"
#include "worker_runtime/gpu/device.h"

namespace ddp::internal {

// What a rank has of a group on GPUs: a queue that launches its operations, a recorder of graphs of
// them, and a watchdog that ends what does not end by itself.
class NcclCommunicator final : public GroupCommunicator {
 public:
  struct Options {
    std::chrono::milliseconds timeout{0};
    GroupLabel label{};             // FlightRecorder's
    bool registers_memory = false;  // from ncclMemAlloc, on every rank
    bool compares_calls = false;    // the ranks do, before each
    bool is_high_priority = false;  // the stream of the operations
    // Watchdog's.
    std::function<void(const std::string& why)> on_hopeless;
  };

  // `communication` may be null in a group of one: then nothing needs NCCL. `host` is the
  // communicator of the same ranks for host memory. `board` is null in a group of one. Errors: the
  // driver's.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Create(
      std::unique_ptr<Device> device, std::unique_ptr<NcclCommunication> communication,
      std::unique_ptr<HostCommunicator> host, std::unique_ptr<FailureBoard> board, Options options);
  // Finalises within a few seconds, or aborts.
  ~NcclCommunicator() override;

  int rank() const override { return host_->rank(); }
  int world_size() const override { return host_->world_size(); }
  const char* backend() const override { return communication_ ? "nccl" : "local"; }
  DeviceType device_type() const override { return DeviceType::kCuda; }
  Communicator& host() override { return *host_; }

  void SetTimeout(std::chrono::milliseconds timeout) override;
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override;
  absl::StatusOr<std::unique_ptr<HalfCasts>> MakeHalfCasts(DType type) override;
  absl::StatusOr<std::unique_ptr<TensorHash>> MakeTensorHash() override;
  GradientArithmetic* gradient_arithmetic() override { return &arithmetic_; }
  std::unique_ptr<Work> Barrier() override;
  GraphCapture* graph_capture() override { return &graphs_; }
  DeviceTimer* device_timer() override { return &timer_; }
  void Abort(const std::string& reason) override { watchdog_.Abort(reason); }
  absl::Status error() const override { return queue_.error(); }
  absl::StatusOr<std::string> DumpOperations() override { return queue_.recorder().Dump(); }
  void Leave() override;

  const Device& device() const { return *device_; }

 private:
  NcclCommunicator(std::unique_ptr<Device> device, std::unique_ptr<NcclCommunication> communication,
                   std::unique_ptr<HostCommunicator> host, std::unique_ptr<FailureBoard> board,
                   Options options);
  std::unique_ptr<Work> Submit(Op op, Stream stream) override;
  absl::Status CompareCalls(const Op& op);

  std::unique_ptr<Device> device_;                    // both are left to a thread that hangs
  std::unique_ptr<NcclCommunication> communication_;  // at the very end, and only then
  const std::unique_ptr<HostCommunicator> host_;
  const std::unique_ptr<FailureBoard> board_;
  const bool registers_memory_;
  LaunchQueue queue_;
  GraphRecorder graphs_;
  Watchdog watchdog_;
  GpuTimer timer_;
  DeviceArithmetic arithmetic_{*device_, queue_};
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_COMMUNICATOR_H_
