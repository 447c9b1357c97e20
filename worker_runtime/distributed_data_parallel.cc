#include "ddp/distributed_data_parallel.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/graph_capture.h"
#include "worker_runtime/gradient_reducer.h"
#include "worker_runtime/gradient_values.h"
#include "worker_runtime/join_rounds.h"
#include "worker_runtime/model_tensors.h"

namespace ddp {
namespace {

absl::Status NotFinalized() {
  return absl::FailedPreconditionError("DistributedDataParallel: call Finalize() first");
}

// Marks that a thread is in a call, so that another one's call is told instead of taking part.
class Calling {
 public:
  explicit Calling(std::atomic<bool>& is_called)
      : is_called_(is_called), is_alone_(!is_called.exchange(true, std::memory_order_acquire)) {}
  ~Calling() {
    if (is_alone_) is_called_.store(false, std::memory_order_release);
  }
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;

  absl::Status Check(const char* call) const {
    if (is_alone_) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(call,
                     "() while another thread is in a call of the same "
                     "DistributedDataParallel: make one call after the other"));
  }

 private:
  std::atomic<bool>& is_called_;
  const bool is_alone_;
};

// Time covered by at least one bucket. They run one after the other on the communicator, so the
// intervals are sorted, but for works of a hook's own.
std::chrono::nanoseconds BusyTime(const std::vector<internal::PassRecord::BucketTimes>& buckets) {
  std::chrono::nanoseconds busy{0};
  Work::Clock::time_point end{};
  for (const internal::PassRecord::BucketTimes& bucket : buckets) {
    const Work::Clock::time_point begin = std::max(bucket.started, end);
    if (bucket.ended > begin) busy += bucket.ended - begin;
    end = std::max(end, bucket.ended);
  }
  return busy;
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(Communicator& communicator,
                                                 DistributedDataParallelOptions options)
    : communicator_(communicator), options_(options), averages_stream_(options.stream) {}

DistributedDataParallel::~DistributedDataParallel() {
  if (!options_.shard_gradients) return;
  if (internal::GraphCapture* capture = communicator_.graph_capture()) {
    capture->on_begin.erase(this);
    capture->on_discard.erase(this);
  }
}

absl::Status DistributedDataParallel::CheckNoneIsLate() const {
  if (late_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(late_, " was registered after Finalize()"));
}

absl::Status DistributedDataParallel::BroadcastBuffers(std::optional<Stream> stream) {
  if (reducer_ == nullptr) return NotFinalized();
  const Calling calling(reducer_->is_called());
  if (absl::Status status = calling.Check("BroadcastBuffers"); !status.ok()) return status;
  if (absl::Status status = CheckNoneIsLate(); !status.ok()) return status;
  if (absl::Status status = reducer_->CheckBetweenPasses("BroadcastBuffers"); !status.ok()) {
    return status;
  }
  // PyTorch's rule: a forward pass makes the broadcast of the next one due unless it is in no_sync.
  const bool is_due = std::exchange(is_broadcast_due_, no_sync_depth_ == 0);
  if (!is_due || !options_.broadcast_buffers) return absl::OkStatus();
  internal::BroadcastOptions how{.stream = stream.value_or(options_.stream), .stream_waits = true};
  if (join_ != nullptr) {
    const auto round = join_->Next(internal::JoinAct::kBuffers);
    if (!round.ok()) return round.status();
    how.root = join_->last_active();
  }
  return internal::BroadcastTensors(communicator_, buffers_, "buffers", how);
}

absl::Status DistributedDataParallel::RegisterCommHook(CommHook hook) {
  if (reducer_ == nullptr) return NotFinalized();
  const Calling calling(reducer_->is_called());
  if (absl::Status status = calling.Check("RegisterCommHook"); !status.ok()) return status;
  if (hook == nullptr) return absl::InvalidArgumentError("RegisterCommHook: the hook is empty");
  if (join_ != nullptr) {
    return absl::FailedPreconditionError(
        "RegisterCommHook in a Join: ranks that have joined cannot register it; do so before");
  }
  if (options_.compression != GradientCompression::kNone) {
    return absl::FailedPreconditionError(
        "RegisterCommHook: the option `compression` is a communication hook already; choose one");
  }
  if (options_.shard_gradients) {
    return absl::FailedPreconditionError(
        "RegisterCommHook: with shard_gradients buckets are reduced by a reduce-scatter; use a "
        "hook without it");
  }
  return reducer_->SetHook(std::move(hook));
}

void* DistributedDataParallel::GradientPtr(int id) const {
  return reducer_ == nullptr ? nullptr : reducer_->GradientPtr(id);
}

bool DistributedDataParallel::WasUsed(int id) const {
  return reducer_ == nullptr || reducer_->WasUsed(id);
}

absl::Status DistributedDataParallel::GradientReady(int id, std::optional<Stream> stream) {
  if (reducer_ == nullptr) return NotFinalized();
  const Calling calling(reducer_->is_called());
  if (absl::Status status = calling.Check("GradientReady"); !status.ok()) return status;
  if (absl::Status status = CheckHasNoAverages(); !status.ok()) return status;
  const Stream on = stream.value_or(options_.stream);
  if (no_sync_depth_ > 0) return reducer_->MarkUnsynchronized(id, on);
  if (absl::Status status = JoinPass(); !status.ok()) return status;
  return reducer_->MarkReady(id, on);
}

absl::Status DistributedDataParallel::Finish(std::optional<Stream> stream) {
  if (reducer_ == nullptr) return NotFinalized();
  const Calling calling(reducer_->is_called());
  if (absl::Status status = calling.Check("Finish"); !status.ok()) return status;
  if (absl::Status status = CheckNoneIsLate(); !status.ok()) return status;
  if (no_sync_depth_ > 0) return reducer_->TakeRefusal();
  if (absl::Status status = JoinPass(); !status.ok()) return status;
  if (!stream.has_value() && reducer_->PassStream().value_or(options_.stream) != options_.stream) {
    return absl::InvalidArgumentError(
        "finish a backward pass on the options' stream: its gradients were announced on another "
        "stream; name the optimizer's stream in Finish(), or set "
        "DistributedDataParallelOptions::stream");
  }
  is_pass_announced_ = false;
  if (absl::Status status = CheckHasNoAverages(); !status.ok()) return status;
  absl::Status status = reducer_->Finish(stream.value_or(options_.stream));
  // After a gradient that was refused, too.
  if (reducer_->CheckBetweenPasses("Finish").ok()) averages_ = Averages::kInShard;
  averages_stream_ = stream.value_or(options_.stream);
  return status;
}

ReductionTimes DistributedDataParallel::last_reduction() const {
  ReductionTimes times;
  if (reducer_ == nullptr) return times;
  const internal::PassRecord& record = reducer_->record();
  const bool is_on_gpu = communicator_.device_type() == DeviceType::kCuda;
  for (const ReductionTimes::TimePoint ready : record.gradient_ready) {
    if (is_on_gpu) break;  // the host announces them long before the device has computed them
    times.backward_end = std::max(times.backward_end, ready);
  }
  for (const internal::PassRecord::BucketTimes& bucket : record.buckets) {
    times.backward_end = std::max(times.backward_end, bucket.launched);
    times.communication_end = std::max(times.communication_end, bucket.ended);
  }
  times.communication = BusyTime(record.buckets);
  return times;
}

std::vector<BucketTimes> DistributedDataParallel::last_buckets() const {
  std::vector<BucketTimes> buckets;
  if (reducer_ == nullptr) return buckets;
  for (const internal::PassRecord::BucketTimes& bucket : reducer_->record().buckets) {
    buckets.push_back({.ready = bucket.launched, .started = bucket.started, .ended = bucket.ended});
  }
  return buckets;
}

absl::Status DistributedDataParallel::ZeroGrad(std::optional<Stream> stream) {
  if (reducer_ == nullptr) return NotFinalized();
  const Calling calling(reducer_->is_called());
  if (absl::Status status = calling.Check("ZeroGrad"); !status.ok()) return status;
  // Sharded gradients may carry parameters on the stream of the last Step().
  const bool is_behind_step = options_.shard_gradients && averages_ != Averages::kNone;
  absl::Status status =
      reducer_->ZeroGradients(stream.value_or(is_behind_step ? averages_stream_ : options_.stream));
  if (status.ok()) averages_ = Averages::kNone;
  return status;
}

// All of them that are averages, if `call` may read them now.
absl::StatusOr<std::vector<internal::GradientValues>> DistributedDataParallel::GradientsFor(
    const char* call) const {
  if (const internal::GraphCapture* capture = communicator_.graph_capture();
      capture != nullptr && capture->is_capturing()) {
    return absl::FailedPreconditionError(absl::StrCat(
        call,
        " in a step that is captured: the host would wait for its number, which a replay "
        "cannot; do this outside of the StepGraph"));
  }
  if (absl::Status status = CheckNoneIsLate(); !status.ok()) return status;
  if (absl::Status status = reducer_->CheckBetweenPasses(call); !status.ok()) return status;
  std::vector<internal::GradientValues> gradients;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const internal::ModelTensor& parameter = parameters_[i];
    if (!internal::IsFloat(parameter.dtype)) {
      return absl::InvalidArgumentError(
          absl::StrCat(call, ": the gradient of '", parameter.name, "' is ", Name(parameter.dtype),
                       ", and only floating-point types can be scaled or not finite"));
    }
    gradients.push_back({.dtype = parameter.dtype,
                         .data = reducer_->GradientPtr(static_cast<int>(i)),
                         .count = parameter.count});
  }
  if (!options_.shard_gradients) return gradients;
  if (absl::Status status = CheckHasAverages(call); !status.ok()) return status;
  return ShardOf(gradients);
}

absl::StatusOr<double> DistributedDataParallel::ClipGradNorm(double max_norm, double norm_type,
                                                             bool error_if_nonfinite,
                                                             std::optional<Stream> stream) {
  if (reducer_ == nullptr) return NotFinalized();
  const Calling calling(reducer_->is_called());
  if (absl::Status status = calling.Check("ClipGradNorm"); !status.ok()) return status;
  const auto gradients = GradientsFor("ClipGradNorm");
  if (!gradients.ok()) return gradients.status();
  if (!(max_norm >= 0) || !(norm_type > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("ClipGradNorm to ", max_norm, " by the norm of order ", norm_type,
                     ": the norm must be at least 0 and its order above 0"));
  }
  internal::GradientArithmetic& arithmetic = internal::ArithmeticFor(communicator_);
  const Stream on = stream.value_or(averages_stream_);
  absl::StatusOr<double> part = arithmetic.PartOfNorm(*gradients, norm_type, on);
  if (!part.ok()) return part.status();
  absl::Status status = CombineShards(&*part, DType::kFloat64,
                                      std::isinf(norm_type) ? ReduceOp::kMax : ReduceOp::kSum);
  if (!status.ok()) return status;
  const double norm = internal::NormOf(*part, norm_type);
  if (error_if_nonfinite && !std::isfinite(norm)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the total norm of order ", norm_type, " of the gradients is ", norm,
        ", so they cannot be clipped; without error_if_nonfinite they are scaled by it "
        "anyway"));
  }
  // A norm that is no number makes all gradients none, as in PyTorch.
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) return norm;
  for (const internal::GradientValues& gradient : *gradients) {
    status = arithmetic.Scale(gradient, factor, on);
    if (!status.ok()) return status;
  }
  return norm;
}

absl::StatusOr<size_t> DistributedDataParallel::CountNonFinite(std::optional<Stream> stream) {
  if (reducer_ == nullptr) return NotFinalized();
  const Calling calling(reducer_->is_called());
  if (absl::Status status = calling.Check("CountNonFinite"); !status.ok()) return status;
  const auto gradients = GradientsFor("CountNonFinite");
  if (!gradients.ok()) return gradients.status();
  internal::GradientArithmetic& arithmetic = internal::ArithmeticFor(communicator_);
  absl::StatusOr<int64_t> count =
      arithmetic.CountNonFinite(*gradients, stream.value_or(averages_stream_));
  if (!count.ok()) return count.status();
  absl::Status status = CombineShards(&*count, DType::kInt64, ReduceOp::kSum);
  if (!status.ok()) return status;
  return static_cast<size_t>(*count);
}

int DistributedDataParallel::bucket_count() const {
  return reducer_ == nullptr ? 0 : static_cast<int>(reducer_->layout().buckets.size());
}

bool DistributedDataParallel::IsReduced(int bucket) const {
  return reducer_ != nullptr && reducer_->IsReduced(bucket);
}

DistributedDataParallel::NoSyncGuard DistributedDataParallel::NoSync(bool is_active) {
  return NoSyncGuard(is_active ? &no_sync_depth_ : nullptr);
}

DistributedDataParallel::NoSyncGuard::NoSyncGuard(int* depth) : depth_(depth) {
  if (depth_ != nullptr) ++*depth_;
}

DistributedDataParallel::NoSyncGuard::NoSyncGuard(NoSyncGuard&& other) noexcept
    : depth_(std::exchange(other.depth_, nullptr)) {}

DistributedDataParallel::NoSyncGuard::~NoSyncGuard() {
  if (depth_ != nullptr) --*depth_;
}

}  // namespace ddp
