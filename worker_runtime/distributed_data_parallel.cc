#include "ddp/distributed_data_parallel.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_runtime/gradient_memory.h"
#include "worker_runtime/gradient_reducer.h"
#include "worker_runtime/gradient_values.h"
#include "worker_runtime/half_casts.h"
#include "worker_runtime/join_rounds.h"
#include "worker_runtime/model_tensors.h"
#include "worker_runtime/parameter_check.h"

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

DType WireTypeOf(GradientCompression compression) {
  switch (compression) {
    case GradientCompression::kNone:
      return DType::kFloat32;
    case GradientCompression::kFloat16:
      return DType::kFloat16;
    case GradientCompression::kBFloat16:
      return DType::kBFloat16;
  }
  return DType::kFloat32;
}

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
    : communicator_(communicator), options_(options) {}

DistributedDataParallel::~DistributedDataParallel() = default;

int DistributedDataParallel::AddParameter(const std::string& name, void* data, size_t count,
                                          DType dtype) {
  if (reducer_ != nullptr) late_ = absl::StrCat("parameter '", name, "'");
  parameters_.push_back({.name = name, .data = data, .count = count, .dtype = dtype});
  return static_cast<int>(parameters_.size()) - 1;
}

int DistributedDataParallel::AddParameter(const std::string& name, void* data, size_t count,
                                          DType dtype, Piece gradient) {
  const int id = AddParameter(name, data, count, dtype);
  own_gradients_.resize(static_cast<size_t>(id));
  own_gradients_.push_back(gradient);
  return id;
}

void DistributedDataParallel::AddBuffer(const std::string& name, void* data, size_t count,
                                        DType dtype) {
  if (reducer_ != nullptr) late_ = absl::StrCat("buffer '", name, "'");
  buffers_.push_back({.name = name, .data = data, .count = count, .dtype = dtype});
}

absl::Status DistributedDataParallel::CheckModel() const {
  absl::Status status = internal::CheckTensors(parameters_, buffers_);
  if (!status.ok() || own_gradients_.empty()) return status;
  std::vector<Piece> gradients;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (i < own_gradients_.size() && own_gradients_[i].has_value()) {
      gradients.push_back(*own_gradients_[i]);
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter '", parameters_[i].name,
        "' was registered without a gradient, and others with one in memory of the program's own: "
        "give all of them one, or none"));
  }
  return internal::CheckAdopted(parameters_, buffers_, gradients);
}

absl::Status DistributedDataParallel::Finalize() {
  if (reducer_ != nullptr) {
    return absl::FailedPreconditionError("DistributedDataParallel: Finalize() was called before");
  }
  if (absl::Status status = CheckModel(); !status.ok()) {
    communicator_.Abort(absl::StrCat("rank ", communicator_.rank(), ": ", status.message()));
    return status;
  }
  std::vector<internal::ParameterDescription> descriptions;
  std::vector<std::string> names;
  std::vector<internal::GradientSpec> gradients;
  for (const internal::ModelTensor& parameter : parameters_) {
    descriptions.push_back(
        {.name = parameter.name, .count = parameter.count, .dtype = parameter.dtype});
    names.push_back(parameter.name);
    gradients.push_back({.count = parameter.count,
                         .dtype = parameter.dtype,
                         .device = communicator_.device_type()});
  }
  for (const internal::ModelTensor& buffer : buffers_) {
    descriptions.push_back({.name = absl::StrCat("buffer ", buffer.name),
                            .count = buffer.count,
                            .dtype = buffer.dtype});
  }
  const internal::GradientChoices choices{.limits = {.first_bytes = options_.first_bucket_bytes,
                                                     .cap_bytes = options_.bucket_cap_bytes},
                                          .wire_type = WireTypeOf(options_.compression),
                                          .find_unused_parameters = options_.find_unused_parameters,
                                          .broadcast_buffers = options_.broadcast_buffers,
                                          .static_graph = options_.static_graph,
                                          .adopts_gradients = !own_gradients_.empty(),
                                          .rebuild_buckets = options_.rebuild_buckets};
  absl::Status status = internal::CheckSameParameters(communicator_.host(), descriptions, choices);
  if (!status.ok()) return status;
  const bool finds_unused = options_.find_unused_parameters || options_.static_graph;
  if (finds_unused && communicator_.device_type() == DeviceType::kCuda) {
    return absl::UnimplementedError(
        "find_unused_parameters and static_graph work in host memory only: on GPUs give every "
        "parameter a gradient in every pass, zeros if need be");
  }
  if (options_.rebuild_buckets && finds_unused && !options_.static_graph) {
    return absl::InvalidArgumentError(
        "rebuild_buckets with find_unused_parameters: passes may use other parameters than the "
        "first, whose order would count; use static_graph, or do without one of the two");
  }
  absl::StatusOr<internal::WireFormat> wire = MakeWireFormat();
  if (!wire.ok()) return wire.status();
  status = internal::BroadcastTensors(communicator_, parameters_, "parameters",
                                      {.stream = options_.stream});
  if (!status.ok()) return status;
  status =
      internal::BroadcastTensors(communicator_, buffers_, "buffers", {.stream = options_.stream});
  if (!status.ok()) return status;
  std::vector<Piece> adopted;
  for (const std::optional<Piece>& gradient : own_gradients_) adopted.push_back(*gradient);
  absl::StatusOr<std::unique_ptr<internal::GradientReducer>> reducer =
      internal::GradientReducer::Create(communicator_, std::move(names), gradients, choices.limits,
                                        *std::move(wire), std::move(adopted));
  if (!reducer.ok()) return reducer.status();
  reducer_ = *std::move(reducer);
  if (options_.rebuild_buckets) reducer_->RebuildBuckets(choices.limits);
  if (finds_unused) reducer_->FindUnusedParameters(options_.static_graph);
  return absl::OkStatus();
}

// In a group of one nothing travels.
absl::StatusOr<internal::WireFormat> DistributedDataParallel::MakeWireFormat() const {
  internal::WireFormat wire{.type = WireTypeOf(options_.compression), .casts = nullptr};
  if (wire.type == DType::kFloat32 || communicator_.world_size() == 1) return wire;
  absl::StatusOr<std::unique_ptr<HalfCasts>> casts =
      internal::MakeHalfCasts(communicator_, wire.type);
  if (!casts.ok()) return casts.status();
  wire.casts = *std::move(casts);
  return wire;
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
  return reducer_->SetHook(std::move(hook));
}

void* DistributedDataParallel::GradientPtr(int id) const {
  return reducer_ == nullptr ? nullptr : reducer_->GradientPtr(id);
}

absl::Status DistributedDataParallel::GradientReady(int id, std::optional<Stream> stream) {
  if (reducer_ == nullptr) return NotFinalized();
  const Calling calling(reducer_->is_called());
  if (absl::Status status = calling.Check("GradientReady"); !status.ok()) return status;
  if (no_sync_depth_ > 0) return reducer_->MarkUnsynchronized(id);
  if (absl::Status status = JoinPass(); !status.ok()) return status;
  return reducer_->MarkReady(id, stream.value_or(options_.stream));
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
  return reducer_->Finish(stream.value_or(options_.stream));
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
  return reducer_->ZeroGradients(stream.value_or(options_.stream));
}

// All of them, if `call` may read them now.
absl::StatusOr<std::vector<internal::GradientValues>> DistributedDataParallel::GradientsFor(
    const char* call) const {
  if (communicator_.device_type() == DeviceType::kCuda) {
    return absl::UnimplementedError(absl::StrCat(
        call, " works in host memory only: on a GPU read the gradients at GradientPtr()"));
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
  return gradients;
}

absl::StatusOr<double> DistributedDataParallel::ClipGradNorm(double max_norm, double norm_type,
                                                             bool error_if_nonfinite) {
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
  internal::NormSum sum(norm_type);
  for (const internal::GradientValues& gradient : *gradients) sum.Add(gradient);
  const double norm = sum.Norm();
  if (error_if_nonfinite && !std::isfinite(norm)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the total norm of order ", norm_type, " of the gradients is ", norm,
        ", so they cannot be clipped; without error_if_nonfinite they are scaled by it all the "
        "same"));
  }
  // A norm that is no number makes all gradients none, as in PyTorch.
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) return norm;
  for (const internal::GradientValues& gradient : *gradients) internal::Scale(gradient, factor);
  return norm;
}

absl::StatusOr<size_t> DistributedDataParallel::CountNonFinite() {
  if (reducer_ == nullptr) return NotFinalized();
  const Calling calling(reducer_->is_called());
  if (absl::Status status = calling.Check("CountNonFinite"); !status.ok()) return status;
  const auto gradients = GradientsFor("CountNonFinite");
  if (!gradients.ok()) return gradients.status();
  size_t count = 0;
  for (const internal::GradientValues& gradient : *gradients) {
    count += internal::CountNonFinite(gradient);
  }
  return count;
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
