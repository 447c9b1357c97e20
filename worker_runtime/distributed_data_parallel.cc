#include "ddp/distributed_data_parallel.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_runtime/gradient_reducer.h"
#include "worker_runtime/half_casts.h"
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

// Parameters whose broadcasts are under way at the same time: hides latency, bounds the queue.
constexpr size_t kBroadcastsInFlight = 64;

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
// intervals are sorted.
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
  is_late_parameter_ |= reducer_ != nullptr;
  parameters_.push_back({.name = name, .data = data, .count = count, .dtype = dtype});
  return static_cast<int>(parameters_.size()) - 1;
}

absl::Status DistributedDataParallel::CheckRegistered() const {
  std::set<std::string> names;
  for (const Parameter& parameter : parameters_) {
    if (!names.insert(parameter.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter '", parameter.name, "' was registered twice"));
    }
    if (parameter.data == nullptr && parameter.count > 0) {
      return absl::InvalidArgumentError(absl::StrCat("parameter '", parameter.name, "' of ",
                                                     parameter.count, " elements has no memory"));
    }
  }
  return absl::OkStatus();
}

absl::Status DistributedDataParallel::Finalize() {
  if (reducer_ != nullptr) {
    return absl::FailedPreconditionError("DistributedDataParallel: Finalize() was called before");
  }
  if (absl::Status status = CheckRegistered(); !status.ok()) {
    communicator_.Abort(absl::StrCat("rank ", communicator_.rank(), ": ", status.message()));
    return status;
  }
  std::vector<internal::ParameterDescription> descriptions;
  std::vector<std::string> names;
  std::vector<internal::GradientSpec> gradients;
  for (const Parameter& parameter : parameters_) {
    descriptions.push_back(
        {.name = parameter.name, .count = parameter.count, .dtype = parameter.dtype});
    names.push_back(parameter.name);
    gradients.push_back({.count = parameter.count,
                         .dtype = parameter.dtype,
                         .device = communicator_.device_type()});
  }
  const internal::GradientChoices choices{.limits = {.first_bytes = options_.first_bucket_bytes,
                                                     .cap_bytes = options_.bucket_cap_bytes},
                                          .wire_type = WireTypeOf(options_.compression)};
  absl::Status status = internal::CheckSameParameters(communicator_.host(), descriptions, choices);
  if (!status.ok()) return status;
  absl::StatusOr<internal::WireFormat> wire = MakeWireFormat();
  if (!wire.ok()) return wire.status();
  if (status = BroadcastParameters(); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<internal::GradientReducer>> reducer =
      internal::GradientReducer::Create(communicator_, std::move(names), gradients, choices.limits,
                                        *std::move(wire));
  if (!reducer.ok()) return reducer.status();
  reducer_ = *std::move(reducer);
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

absl::Status DistributedDataParallel::BroadcastParameters() {
  absl::Status first;
  std::vector<std::unique_ptr<Work>> works;
  const auto drain = [&first, &works] {
    for (const std::unique_ptr<Work>& work : works) first.Update(work->Wait());
    works.clear();
  };
  for (const Parameter& parameter : parameters_) {
    works.push_back(communicator_.Broadcast(parameter.data, parameter.count, parameter.dtype,
                                            /*root=*/0, options_.stream));
    // One that is done at once may have been refused: what comes next would meet the others' call.
    if (works.size() == kBroadcastsInFlight || works.back()->IsDone()) drain();
    if (!first.ok()) break;
  }
  drain();
  if (first.ok()) return first;
  // The others wait for a call that was refused on this rank.
  if (communicator_.error().ok()) {
    communicator_.Abort(absl::StrCat("rank ", communicator_.rank(), ": ", first.message()));
  }
  return absl::Status(first.code(),
                      absl::StrCat("broadcast rank 0's parameters: ", first.message()));
}

void* DistributedDataParallel::GradientPtr(int id) const {
  return reducer_ == nullptr ? nullptr : reducer_->GradientPtr(id);
}

absl::Status DistributedDataParallel::GradientReady(int id, std::optional<Stream> stream) {
  if (reducer_ == nullptr) return NotFinalized();
  const Calling calling(reducer_->is_called());
  if (absl::Status status = calling.Check("GradientReady"); !status.ok()) return status;
  if (no_sync_depth_ > 0) return reducer_->MarkUnsynchronized(id);
  return reducer_->MarkReady(id, stream.value_or(options_.stream));
}

absl::Status DistributedDataParallel::Finish(std::optional<Stream> stream) {
  if (reducer_ == nullptr) return NotFinalized();
  const Calling calling(reducer_->is_called());
  if (absl::Status status = calling.Check("Finish"); !status.ok()) return status;
  if (is_late_parameter_) {
    return absl::FailedPreconditionError(
        absl::StrCat("parameter '", parameters_.back().name, "' was registered after Finalize()"));
  }
  if (no_sync_depth_ > 0) return absl::OkStatus();
  if (!stream.has_value() && reducer_->PassStream().value_or(options_.stream) != options_.stream) {
    return absl::InvalidArgumentError(
        "finish a backward pass on the options' stream: its gradients were announced on another "
        "stream; name the optimizer's stream in Finish(), or set "
        "DistributedDataParallelOptions::stream");
  }
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

absl::Status DistributedDataParallel::ZeroGrad(std::optional<Stream> stream) {
  if (reducer_ == nullptr) return NotFinalized();
  const Calling calling(reducer_->is_called());
  if (absl::Status status = calling.Check("ZeroGrad"); !status.ok()) return status;
  return reducer_->ZeroGradients(stream.value_or(options_.stream));
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
