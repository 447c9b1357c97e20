#include "worker_runtime/comm/nccl/nccl_communicator.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/nccl/device_buffer.h"
#include "worker_runtime/comm/nccl/device_casts.h"
#include "worker_runtime/comm/nccl/device_hash.h"
#include "worker_runtime/comm/op_record.h"

namespace ddp::internal {
namespace {

// For how long the end waits for what others do on the device.
constexpr std::chrono::seconds kDrain(5);

}  // namespace

NcclCommunicator::NcclCommunicator(std::unique_ptr<Device> device,
                                   std::unique_ptr<NcclCommunication> communication,
                                   std::unique_ptr<HostCommunicator> host,
                                   std::unique_ptr<FailureBoard> board, Options options)
    : device_(std::move(device)),
      communication_(std::move(communication)),
      host_(std::move(host)),
      board_(std::move(board)),
      registers_memory_(options.registers_memory && communication_ != nullptr),
      queue_(*device_, communication_.get(),
             {.rank = rank(),
              .world_size = world_size(),
              .timeout = options.timeout,
              .label = options.label,
              .is_high_priority = options.is_high_priority,
              .check = options.compares_calls && world_size() > 1
                           ? [this](const Op& op) { return CompareCalls(op); }
                           : std::function<absl::Status(const Op&)>(),
              .on_failure = [this](const auto& why) { watchdog_.Fail(why, KnownTo::kThisRank); }}),
      graphs_(*device_, queue_),
      watchdog_({.device = *device_,
                 .communication = communication_.get(),
                 .host = *host_,
                 .board = board_.get(),
                 .queue = queue_,
                 .graphs = graphs_,
                 .on_hopeless = std::move(options.on_hopeless)}),
      timer_(*device_, queue_.clock(), queue_.pool(), [this] { return error().ok(); }) {}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Create(
    std::unique_ptr<Device> device, std::unique_ptr<NcclCommunication> communication,
    std::unique_ptr<HostCommunicator> host, std::unique_ptr<FailureBoard> board, Options options) {
  std::unique_ptr<NcclCommunicator> made(
      new NcclCommunicator(std::move(device), std::move(communication), std::move(host),
                           std::move(board), std::move(options)));
  absl::Status status = made->queue_.Start();
  if (status.ok()) status = made->watchdog_.Start();
  if (!status.ok()) {
    // The others have a group, and would wait for this rank in it.
    made->host_->Abort(std::string(status.message()));
    return status;
  }
  return made;
}

void NcclCommunicator::SetTimeout(std::chrono::milliseconds timeout) {
  host_->SetTimeout(timeout);
  queue_.SetTimeout(timeout);
}

// All ranks use registered memory, or none: NCCL leaves registration by some undefined.
absl::StatusOr<std::unique_ptr<Buffer>> NcclCommunicator::Allocate(size_t bytes) {
  absl::Status valid =
      CheckArguments({.kind = OpKind::kAllocate, .count = bytes}, rank(), world_size());
  if (!valid.ok()) return valid;
  absl::StatusOr<std::unique_ptr<Buffer>> buffer;
  // After a failure the device may hang.
  const auto may_free = [this] {
    return error().ok() || watchdog_.ending() == Watchdog::Ending::kOrderly;
  };
  for (const bool is_registered : {true, false}) {
    if (is_registered && !registers_memory_) continue;
    {
      // NCCL takes no registration beside a call in progress.
      const LaunchQueue::Turn turn(queue_);
      if (absl::Status status = error(); !status.ok()) return status;
      buffer = AllocateDeviceBuffer(*device_, is_registered ? communication_.get() : nullptr, bytes,
                                    {.queue = queue_, .may_free = may_free});
    }
    int32_t failures = buffer.ok() ? 0 : 1;
    absl::Status status =
        host_->AllReduce(&failures, 1, DType::kInt32, ReduceOp::kSum, nullptr)->Wait();
    if (!status.ok()) return status;
    if (failures == 0) return buffer;
    if (buffer.ok()) {
      buffer = absl::ResourceExhaustedError(
          absl::StrCat("allocate ", bytes, " bytes: ", failures, " other ranks have no memory"));
    }
  }
  return buffer;
}

absl::StatusOr<std::unique_ptr<HalfCasts>> NcclCommunicator::MakeHalfCasts(DType type) {
  return MakeDeviceCasts(*device_, type);
}

absl::StatusOr<std::unique_ptr<TensorHash>> NcclCommunicator::MakeTensorHash() {
  return MakeDeviceHash(*device_, queue_);
}

std::unique_ptr<Work> NcclCommunicator::Barrier() {
  return std::make_unique<GpuWork>(queue_, queue_.SubmitBarrier());
}

std::unique_ptr<Work> NcclCommunicator::Submit(Op op, Stream stream) {
  return std::make_unique<GpuWork>(queue_,
                                   queue_.Submit(std::move(op), static_cast<CudaStream>(stream)));
}

// On the host, as torch.distributed does at this level: NCCL moves bytes and looks at nothing, so
// that a sum here and an average there end with garbage and without an error.
absl::Status NcclCommunicator::CompareCalls(const Op& op) {
  OpRecord mine = RecordOf(op);
  // It gets its number when it is launched; the message names it.
  mine.sequence = queue_.last_sequence() + 1;
  std::vector<OpRecord> all(static_cast<size_t>(world_size()));
  absl::Status status =
      host_->AllGather(&mine, all.data(), sizeof(mine), DType::kUint8, nullptr)->Wait();
  if (!status.ok()) {
    const absl::Status marked = host_->MarkedError();
    watchdog_.Fail(marked.ok() ? status : marked, KnownTo::kHost);
    return status;
  }
  for (int rank = 1; rank < world_size() && status.ok(); ++rank) {
    status = CheckSame(0, all[0], rank, all[static_cast<size_t>(rank)]);
  }
  if (!status.ok()) watchdog_.Fail(status, KnownTo::kAll);
  return status;
}

void NcclCommunicator::Leave() {
  watchdog_.End();
  host_->Leave();
}

NcclCommunicator::~NcclCommunicator() {
  const Watchdog::Ending ending = watchdog_.End();
  if (ending == Watchdog::Ending::kOrderly && queue_.Release(kDrain)) return;
  // The device may hang, and the process is about to end, its memory with it.
  queue_.pool()->Abandon();
  device_->Abandon();
  arithmetic_.Abandon();
  if (ending != Watchdog::Ending::kHanging) return;
  (void)communication_.release();
  (void)device_.release();
}

}  // namespace ddp::internal
