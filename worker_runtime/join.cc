// DistributedDataParallel::Join: uneven inputs.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ddp/distributed_data_parallel.h"
#include "worker_runtime/agree_on_status.h"
#include "worker_runtime/gradient_reducer.h"
#include "worker_runtime/gradient_values.h"
#include "worker_runtime/join_rounds.h"
#include "worker_runtime/model_tensors.h"

namespace ddp {

using internal::JoinAct;

absl::StatusOr<DistributedDataParallel::JoinGuard> DistributedDataParallel::Join(
    bool divide_by_initial_world_size, std::optional<Stream> stream) {
  if (reducer_ == nullptr || join_ != nullptr) {
    return absl::FailedPreconditionError(
        reducer_ == nullptr ? "Join: call Finalize() first"
                            : "Join: the one before has not ended; Wait() for it first");
  }
  if (options_.static_graph || options_.shard_gradients) {
    return absl::UnimplementedError(
        "Join works without static_graph and shard_gradients only: give all ranks the same number "
        "of batches");
  }
  const bool has_integers = std::any_of(
      parameters_.begin(), parameters_.end(),
      [](const internal::ModelTensor& tensor) { return !internal::IsFloat(tensor.dtype); });
  if (has_integers && !divide_by_initial_world_size) {
    return absl::InvalidArgumentError(
        "Join without divide_by_initial_world_size scales gradients, and integers cannot be");
  }
  if (absl::Status status = CheckNoneIsLate(); !status.ok()) return status;
  if (absl::Status status = reducer_->CheckBetweenPasses("Join"); !status.ok()) return status;
  // A GPU that cannot scale is all ranks' affair; what they choose they tell in the first round.
  if (communicator_.device_type() == DeviceType::kCuda) {
    const absl::Status mine = divide_by_initial_world_size
                                  ? absl::OkStatus()
                                  : internal::ArithmeticFor(communicator_).Prepare();
    absl::Status status = internal::AgreeOnStatus(communicator_.host(), mine);
    if (!status.ok()) return status;
  }
  join_ = std::make_unique<internal::JoinRounds>(communicator_, divide_by_initial_world_size);
  join_divides_by_initial_ = divide_by_initial_world_size;
  join_stream_ = stream.value_or(options_.stream);
  is_pass_announced_ = false;
  return JoinGuard(this);
}

// Before the first gradient of a pass, once, also when that gradient is refused.
absl::Status DistributedDataParallel::JoinPass() {
  if (join_ == nullptr || is_pass_announced_) return absl::OkStatus();
  const auto round = join_->Next(JoinAct::kPass);
  if (!round.ok()) return round.status();
  is_pass_announced_ = true;
  SetJoinDivisor(round->active_count);
  return absl::OkStatus();
}

void DistributedDataParallel::SetJoinDivisor(int active_count) {
  reducer_->SetDivisor(join_divides_by_initial_ ? 0 : active_count);
}

absl::Status DistributedDataParallel::FollowOthers() {
  if (is_pass_announced_) {
    return absl::FailedPreconditionError(
        "Wait for a Join in the middle of a backward pass: call Finish() first");
  }
  while (true) {
    const auto round = join_->Next(JoinAct::kJoined);
    if (!round.ok()) return round.status();
    const internal::BroadcastOptions how{
        .stream = join_stream_, .stream_waits = true, .root = join_->last_active()};
    absl::Status status;
    switch (round->act) {
      case JoinAct::kJoined:
        status = internal::BroadcastTensors(communicator_, parameters_, "parameters", how);
        if (!status.ok()) return status;
        return internal::BroadcastTensors(communicator_, buffers_, "buffers", how);
      case JoinAct::kPass:
        SetJoinDivisor(round->active_count);
        status = reducer_->ReduceZeros(join_stream_);
        break;
      case JoinAct::kBuffers:
        status = internal::BroadcastTensors(communicator_, buffers_, "buffers", how);
        break;
    }
    if (!status.ok()) return status;
  }
}

absl::Status DistributedDataParallel::JoinGuard::Wait() {
  if (owner_ == nullptr) {
    return absl::FailedPreconditionError("Join: Wait() was called before");
  }
  DistributedDataParallel& ddp = *std::exchange(owner_, nullptr);
  const absl::Status status = ddp.FollowOthers();
  // Where the host's part of a group on GPUs has ended, the rest does so with the same words.
  Communicator& communicator = ddp.communicator_;
  if (!status.ok() && communicator.error().ok() && communicator.host().error().ok()) {
    communicator.Abort(absl::StrCat("rank ", communicator.rank(), ": ", status.message()));
  }
  ddp.join_ = nullptr;
  ddp.reducer_->SetDivisor(0);
  // Ranks have ended by different passes, and the next forward pass is the same for all.
  ddp.is_broadcast_due_ = true;
  ddp.averages_stream_ = ddp.join_stream_;
  return status;
}

DistributedDataParallel::JoinGuard::JoinGuard(JoinGuard&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)) {}

DistributedDataParallel::JoinGuard::~JoinGuard() {
  if (owner_ == nullptr) return;
  owner_->communicator_.Abort(
      absl::StrCat("rank ", owner_->communicator_.rank(), " has left a Join without Wait()"));
  owner_->join_ = nullptr;
}

}  // namespace ddp
