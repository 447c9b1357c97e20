#include "worker_runtime/gradient_reducer.h"

#include <exception>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "worker_runtime/comm/graph_capture.h"
#include "worker_runtime/gradient_shards.h"
#include "worker_runtime/gradient_values.h"

namespace ddp::internal {

absl::StatusOr<std::unique_ptr<GradientReducer>> GradientReducer::Create(
    Communicator& communicator, std::vector<std::string> names,
    const std::vector<GradientSpec>& gradients, const BucketLimits& limits, WireFormat wire,
    std::vector<Piece> adopted, Now now) {
  DDP_CHECK(names.size() == gradients.size());
  BucketLayout layout = LayOutBuckets(gradients, limits);
  absl::StatusOr<std::unique_ptr<GradientMemory>> memory =
      adopted.empty() ? GradientMemory::Allocate(communicator, gradients, std::move(layout))
                      : GradientMemory::Adopt(gradients, std::move(adopted), std::move(layout));
  if (!memory.ok()) return memory.status();
  std::unique_ptr<GradientReducer> reducer(
      new GradientReducer(communicator, std::move(names), *std::move(memory), std::move(now)));
  if (wire.casts == nullptr || communicator.world_size() == 1) return reducer;
  auto made = BucketWire::Create(communicator, reducer->layout(), wire.type, std::move(wire.casts));
  if (!made.ok()) return made.status();
  reducer->wire_ = *std::move(made);
  return reducer;
}

GradientReducer::GradientReducer(Communicator& communicator, std::vector<std::string> names,
                                 std::unique_ptr<GradientMemory> memory, Now now)
    : communicator_(communicator),
      memory_(std::move(memory)),
      now_(std::move(now)),
      core_(std::move(names), layout().buckets) {
  if (GraphCapture* capture = communicator_.graph_capture()) {
    capture->on_discard[this] = [this] { ForgetDiscardedPass(); };
  }
  works_.reserve(layout().buckets.size());
  pass_.gradient_ready.resize(memory_->gradients().size());
  pass_.buckets.resize(layout().buckets.size());
}

absl::Status GradientReducer::FindUnusedParameters(bool is_static) {
  DDP_CHECK(!core_.is_in_pass());
  auto made = UnusedParameters::Create(communicator_, *memory_, is_static);
  if (!made.ok()) return made.status();
  unused_ = *std::move(made);
  if (is_static) core_.CountMarks();
  return absl::OkStatus();
}

absl::Status GradientReducer::SetHook(CommHook hook) {
  if (absl::Status status = CheckBetweenPasses("RegisterCommHook"); !status.ok()) return status;
  if (hook_ != nullptr) {
    return absl::FailedPreconditionError("RegisterCommHook: there is a communication hook already");
  }
  if (memory_->is_adopted() || rebuild_limits_.has_value()) {
    return absl::FailedPreconditionError(
        "RegisterCommHook: with rebuild_buckets, and with gradients in memory of the program's "
        "own, "
        "a bucket is not one piece of memory, as a hook needs it; do without these");
  }
  hook_ = std::move(hook);
  return absl::OkStatus();
}

GradientReducer::~GradientReducer() {
  if (GraphCapture* capture = communicator_.graph_capture()) capture->on_discard.erase(this);
  // The others wait for the buckets of a pass, also where none was complete on this rank.
  if (works_.empty() && !core_.is_in_pass()) return;
  communicator_.Abort("the gradients were released in the middle of a backward pass");
  // The communicator's thread must be out of the gradients before their memory goes.
  WaitForLaunched().IgnoreError();
}

// A pass in a capture that was given up has left nothing on the device.
void GradientReducer::ForgetDiscardedPass() {
  if (!std::exchange(is_captured_, false)) return;
  works_.clear();
  core_.Abandon();
  refusal_ = absl::OkStatus();
  failure_ = communicator_.error();
}

absl::Status GradientReducer::CheckCapture() {
  const GraphCapture* capture = communicator_.graph_capture();
  is_captured_ = capture != nullptr && capture->is_capturing();
  may_be_in_graph_ |= is_captured_;
  if (!is_captured_ || unused_ == nullptr || unused_->is_settled()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "a captured step with find_unused_parameters, or with static_graph before the end of the "
      "first synchronised pass. The ranks tell each other on the host which parameters they have "
      "used, and a replay runs nothing on the host. Use static_graph and run a pass before the "
      "capture");
}

absl::Status GradientReducer::BeginPass(Stream stream) {
  stream_ = stream;
  pass_.gradient_ready.assign(pass_.gradient_ready.size(), {});  // some may have none in this pass
  absl::Status status = CheckCapture();
  if (status.ok() && unused_ != nullptr && unused_->is_settled()) status = unused_->Keep(stream);
  return status.ok() ? status : FailPass(std::move(status));
}

absl::Status GradientReducer::MarkReady(int parameter, Stream stream) {
  if (!failure_.ok()) return failure_;
  if (!core_.is_in_pass()) {
    if (absl::Status status = BeginPass(stream); !status.ok()) return status;
  }
  if (stream != stream_ && communicator_.device_type() == DeviceType::kCuda) {
    return Refuse(absl::InvalidArgumentError(absl::StrCat(
        "parameter ", parameter,
        ": its gradient was announced on another stream than the first of this pass; let one "
        "stream wait for the others and announce all on it")));
  }
  const absl::StatusOr<LaunchRange> range = core_.MarkReady(parameter);
  if (!range.ok()) return Refuse(range.status());
  pass_.gradient_ready[parameter] = now_();
  if (unused_ != nullptr) unused_->MarkUsed(parameter);
  return Launch(*range, stream);
}

absl::Status GradientReducer::MarkUnsynchronized(int parameter, Stream stream) {
  if (!failure_.ok()) return failure_;
  absl::Status status = core_.MarkUnsynchronized(parameter);
  if (status.ok()) status = CheckCapture();
  if (!status.ok()) return Refuse(std::move(status));
  if (unused_ != nullptr) unused_->MarkUsed(parameter);
  last_stream_ = stream;
  return status;
}

std::optional<Stream> GradientReducer::PassStream() {
  const bool is_known = core_.is_in_pass() && communicator_.device_type() == DeviceType::kCuda;
  return is_known ? std::optional(stream_) : std::nullopt;
}

absl::Status GradientReducer::Launch(LaunchRange range, Stream stream) {
  for (int i = range.begin; i < range.end; ++i) {
    absl::Status status = LaunchBucket(i, stream);
    // Unseen, the next bucket would meet the others' of this number.
    Work* const work = status.ok() ? works_.back().get() : nullptr;
    if (work != nullptr && work->was_refused()) status = work->Wait();
    if (!status.ok()) return FailPass(std::move(status));
  }
  return absl::OkStatus();
}

absl::Status GradientReducer::CallHook(const GradientBucket& bucket) {
  const auto failed = [&bucket](const std::string& how) {
    return absl::StrCat("the communication hook ", how, " for bucket ", bucket.index);
  };
  try {
    works_.push_back(hook_(bucket, communicator_));
  } catch (const std::exception& error) {
    return absl::UnknownError(failed(absl::StrCat("threw \"", error.what(), "\"")));
  } catch (...) {
    return absl::UnknownError(failed("threw what is no std::exception"));
  }
  if (works_.back() != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(failed("returned no work"));
}

absl::Status GradientReducer::LaunchBucket(int index, Stream stream) {
  const Bucket& bucket = layout().buckets[index];
  const std::vector<Piece>& pieces = memory_->pieces(index);
  PassRecord::BucketTimes& times = pass_.buckets[index];
  if (hook_ != nullptr) {
    times.launched = now_();
    return CallHook({.data = pieces.front().data,
                     .count = bucket.count,
                     .dtype = bucket.dtype,
                     .index = index,
                     .is_last = index + 1 == static_cast<int>(layout().buckets.size()),
                     .stream = stream});
  }
  if (divisor_ != 0) {
    // On the wire they are divided by the world size, too: there they are float32, and do not
    // overflow.
    const double whole = IsOnWire(index) ? communicator_.world_size() : 1;
    for (const Piece& piece : pieces) {
      const GradientValues values = {bucket.dtype, piece.data, piece.count};
      absl::Status status = ArithmeticFor(communicator_).Scale(values, whole / divisor_, stream);
      if (!status.ok()) return status;
    }
  }
  if (communicator_.world_size() == 1) {
    // The average of one rank is there already; a thread would only cost its wake-up.
    times.launched = times.started = times.ended = now_();
    works_.push_back(nullptr);
    return absl::OkStatus();
  }
  if (!IsOnWire(index)) {
    times.launched = now_();
    const ReduceOp op = divisor_ != 0 ? ReduceOp::kSum : ReduceOp::kAverage;
    works_.push_back(pieces.size() == 1
                         ? ReduceBucket(communicator_, layout().parts, pieces[0].data, bucket.count,
                                        bucket.dtype, op, stream)
                         : communicator_.AllReduceCoalesced(pieces, bucket.dtype, op, stream));
    return absl::OkStatus();
  }
  absl::Status status = wire_->Narrow(index, pieces, stream);
  if (!status.ok()) return status;
  times.launched = now_();
  works_.push_back(ReduceBucket(communicator_, layout().parts, wire_->data(index), bucket.count,
                                wire_->type(), ReduceOp::kSum, stream));
  return absl::OkStatus();
}

// The buckets that wait for gradients which do not come, behind those that were announced.
absl::Status GradientReducer::LaunchRest() {
  if (unused_->is_settled()) {
    // A rank that uses none has launched nothing.
    return core_.is_complete() ? Launch(core_.MarkRestReady(), stream_) : absl::OkStatus();
  }
  absl::Status status = unused_->Keep(stream_);
  status = status.ok() ? Launch(core_.MarkRestReady(), stream_) : FailWorks(std::move(status));
  if (!status.ok()) {
    WaitForLaunched().IgnoreError();
    return status;
  }
  unused_->Launch();
  return absl::OkStatus();
}

absl::Status GradientReducer::Refuse(absl::Status status) {
  refusal_.Update(status);
  return status;
}

absl::Status GradientReducer::TakeRefusal() {
  const absl::Status refusal = std::exchange(refusal_, absl::OkStatus());
  if (refusal.ok()) return refusal;
  return absl::Status(refusal.code(),
                      absl::StrCat("a gradient of this pass was refused: ", refusal.message()));
}

absl::Status GradientReducer::Finish(Stream stream) {
  absl::Status status = EndPass(stream);
  return status.ok() ? TakeRefusal() : status;
}

absl::Status GradientReducer::EndPass(Stream stream) {
  if (!failure_.ok()) return failure_;
  if (!core_.is_in_pass()) {  // without a gradient: what the gradients hold is reduced
    if (absl::Status status = BeginPass(last_stream_.value_or(stream)); !status.ok()) return status;
  }
  const bool is_settling = unused_ != nullptr && !unused_->is_settled();
  if (unused_ != nullptr) {
    if (absl::Status status = LaunchRest(); !status.ok()) return status;
  }
  if (absl::Status status = core_.Finish(); !status.ok()) {
    if (const absl::Status refusal = TakeRefusal(); !refusal.ok()) {
      status = absl::Status(status.code(),
                            absl::StrCat(status.message(), "; before it ", refusal.message()));
    }
    status = FailPass(std::move(status));
    WaitForLaunched().IgnoreError();
    return status;
  }
  const bool is_on_gpu = communicator_.device_type() == DeviceType::kCuda;
  absl::Status status = is_on_gpu ? FinishOnStream(stream) : WaitForLaunched();
  if (status.ok() && unused_ != nullptr) status = unused_->Restore(stream);
  if (!status.ok()) {
    works_.clear();
    return FailWorks(std::move(status));
  }
  if (is_settling && unused_->is_settled()) core_.LeaveOut(unused_->is_unused_here());
  last_stream_ = stream;
  is_on_gpu ? AwaitTimes() : times_.Set(pass_);
  return Rebuild();
}

// The others do so at the end of the same pass: rank 0's order is broadcast then.
absl::Status GradientReducer::Rebuild() {
  if (!rebuild_limits_.has_value() || is_rebuilt_ || is_captured_) return absl::OkStatus();
  is_rebuilt_ = true;
  std::vector<int32_t> order = core_.ArrivalOrder();
  absl::Status status =
      communicator_.host().Broadcast(order.data(), order.size(), DType::kInt32, /*root=*/0)->Wait();
  if (!status.ok()) return FailWorks(std::move(status));
  memory_->Regroup(order, *rebuild_limits_);
  core_.SetBuckets(layout().buckets);
  pass_.buckets.resize(layout().buckets.size());
  if (wire_ == nullptr) return absl::OkStatus();
  auto made = BucketWire::Create(communicator_, layout(), wire_->type(), wire_->TakeCasts());
  if (!made.ok()) return FailWorks(made.status());
  std::unique_ptr<BucketWire> before = std::exchange(wire_, *std::move(made));
  if (may_be_in_graph_) wire_of_graph_ = std::move(before);
  return absl::OkStatus();
}

absl::Status GradientReducer::FinishOnStream(Stream stream) {
  absl::Status status = communicator_.error();
  if (status.ok()) status = WaitOnLaunched(stream);
  if (status.ok() && stream != stream_ && !works_.empty() && works_.back() == nullptr) {
    // Alone there was nothing to reduce; the optimizer's stream still comes after the gradients'.
    status =
        communicator_.AllReduce(nullptr, 0, DType::kUint8, ReduceOp::kSum, stream_)->WaitOn(stream);
  }
  return status;
}

void GradientReducer::AwaitTimes() {
  PassTimes::Ended pass{std::exchange(works_, {}), pass_, hook_ != nullptr};
  is_captured_ ? times_.AddCaptured(std::move(pass)) : times_.Add(std::move(pass));
  works_.reserve(layout().buckets.size());
}

// A bucket from the wire is cast back behind its own reduction, so that this overlaps with those of
// later buckets. Buckets are reduced in their order on one stream: the last stands for the others,
// unless a hook says what is done.
absl::Status GradientReducer::WaitOnLaunched(Stream stream) {
  absl::Status status;
  for (size_t i = 0; status.ok() && i < works_.size(); ++i) {
    const int index = static_cast<int>(i);
    if (works_[i] == nullptr) continue;
    const bool stands_alone = IsOnWire(index) || hook_ != nullptr || i + 1 == works_.size();
    if (stands_alone) status = works_[i]->WaitOn(stream);
    if (status.ok() && IsOnWire(index))
      status = wire_->Widen(index, memory_->pieces(index), stream);
  }
  return status;
}

absl::Status GradientReducer::WaitForLaunched() {
  absl::Status first;
  for (size_t i = 0; i < works_.size(); ++i) {
    if (works_[i] == nullptr) continue;
    // Every one is waited for, also after an error: each reads or writes gradients.
    first.Update(works_[i]->Wait());
    const int index = static_cast<int>(i);
    if (first.ok() && IsOnWire(index) && communicator_.device_type() == DeviceType::kCpu) {
      first = wire_->Widen(index, memory_->pieces(index), nullptr);
    }
    pass_.buckets[i].started = works_[i]->started_at();
    pass_.buckets[i].ended = works_[i]->ended_at();
  }
  works_.clear();
  return first;
}

// A call that was refused on this rank alone, a hook's say, has left the group going on: the others
// wait for it. On a GPU the group ends on the device and on the host, one after the other: what
// ended it first is told, and an abort of ours would only take its place.
absl::Status GradientReducer::FailWorks(absl::Status status) {
  const absl::Status error = communicator_.error();
  if (error.ok() && communicator_.host().error().ok()) return FailPass(std::move(status));
  const bool is_on_gpu = communicator_.device_type() == DeviceType::kCuda;
  return Fail(is_on_gpu && !error.ok() ? error : std::move(status));
}

// The others wait for this rank in a bucket. In a capture nobody does: all hear it at its end.
absl::Status GradientReducer::FailPass(absl::Status status) {
  if (!is_captured_) {
    communicator_.Abort(absl::StrCat("rank ", communicator_.rank(), ": ", status.message()));
  }
  return Fail(std::move(status));
}

absl::Status GradientReducer::Fail(absl::Status status) {
  failure_ = std::move(status);
  return failure_;
}

absl::Status GradientReducer::CheckBetweenPasses(const char* call) {
  if (!failure_.ok()) return failure_;
  if (!core_.is_in_pass()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(call, " in the middle of a backward pass: call Finish() first"));
}

absl::Status GradientReducer::ZeroGradients(Stream stream) {
  if (absl::Status status = CheckBetweenPasses("ZeroGrad"); !status.ok()) return status;
  last_stream_ = stream;
  return memory_->Zero(communicator_, stream);
}

absl::Status GradientReducer::ReduceZeros(Stream stream) {
  absl::Status status = ZeroGradients(stream);
  if (status.ok() && unused_ == nullptr) {
    status = BeginPass(stream);
    if (status.ok()) status = Launch(core_.MarkRestReady(), stream);
  }
  return status.ok() ? Finish(stream) : status;
}

bool GradientReducer::IsReduced(int bucket) const {
  if (bucket < 0 || bucket >= static_cast<int>(works_.size())) return false;
  return works_[bucket] == nullptr || works_[bucket]->IsDone();
}

}  // namespace ddp::internal
