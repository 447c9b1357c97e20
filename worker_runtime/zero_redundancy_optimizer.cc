#include "ddp/zero_redundancy_optimizer.h"

#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker_runtime/agree_on_status.h"
#include "worker_runtime/comm/graph_capture.h"
#include "worker_runtime/gradient_reducer.h"
#include "worker_runtime/gradient_shards.h"
#include "worker_runtime/gradient_values.h"
#include "worker_runtime/model_tensors.h"

namespace ddp {
namespace {

using internal::Bucket;
using internal::BucketLayout;

std::vector<size_t> CountsOf(const std::vector<internal::ModelTensor>& parameters) {
  std::vector<size_t> counts;
  for (const internal::ModelTensor& parameter : parameters) counts.push_back(parameter.count);
  return counts;
}

char* Advanced(void* data, size_t bytes) {
  return data == nullptr ? nullptr : static_cast<char*>(data) + bytes;
}

void CopyBytes(void* to, const void* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace

absl::Status DistributedDataParallel::CheckHasNoAverages() const {
  if (!options_.shard_gradients || averages_ == Averages::kNone) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "a backward pass onto gradients of which only this rank's shard is averaged: with "
      "shard_gradients call ZeroGrad() before it");
}

absl::Status DistributedDataParallel::CheckHasAverages(const char* call) const {
  if (absl::Status status = reducer_->CheckBetweenPasses(call); !status.ok()) return status;
  if (averages_ == Averages::kInShard) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      call, "() without averages of the gradients: ",
      averages_ == Averages::kSpent
          ? "a Step() has used them; ZeroGrad() and a backward pass come before the next one"
          : "it comes behind a Finish() outside of NoSync()"));
}

std::vector<internal::GradientValues> DistributedDataParallel::ShardOf(
    const std::vector<internal::GradientValues>& gradients) const {
  std::vector<internal::GradientValues> shard;
  for (const internal::ShardPiece& piece :
       internal::ShardPiecesOf(reducer_->layout(), CountsOf(parameters_), communicator_.rank())) {
    const internal::GradientValues& whole = gradients[static_cast<size_t>(piece.parameter)];
    shard.push_back({.dtype = whole.dtype,
                     .data = Advanced(whole.data, piece.begin * SizeOf(whole.dtype)),
                     .count = piece.count});
  }
  return shard;
}

// One number of all ranks' shards.
absl::Status DistributedDataParallel::CombineShards(void* number, DType dtype, ReduceOp op) const {
  if (!options_.shard_gradients) return absl::OkStatus();
  return communicator_.host().AllReduce(number, 1, dtype, op)->Wait();
}

absl::StatusOr<ZeroRedundancyOptimizer> ZeroRedundancyOptimizer::Create(
    DistributedDataParallel& ddp) {
  if (ddp.reducer_ == nullptr || !ddp.options_.shard_gradients) {
    return absl::FailedPreconditionError(absl::StrCat(
        "ZeroRedundancyOptimizer of a DistributedDataParallel ",
        ddp.reducer_ == nullptr ? "without parameters yet: call its Finalize() first"
                                : "that averages whole gradients: set its option shard_gradients"));
  }
  ZeroRedundancyOptimizer zero(ddp);
  const BucketLayout& layout = ddp.reducer_->layout();
  const int rank = ddp.communicator_.rank();
  zero.shard_ends_.resize(layout.buckets.size());
  for (const internal::ShardPiece& piece :
       internal::ShardPiecesOf(layout, CountsOf(ddp.parameters_), rank)) {
    const internal::ModelTensor& parameter = ddp.parameters_[static_cast<size_t>(piece.parameter)];
    const size_t skipped = piece.begin * SizeOf(parameter.dtype);
    zero.shards_.push_back({.parameter = piece.parameter,
                            .begin = piece.begin,
                            .count = piece.count,
                            .dtype = parameter.dtype,
                            .values = Advanced(parameter.data, skipped),
                            .gradient = Advanced(ddp.GradientPtr(piece.parameter), skipped),
                            .offset = zero.state_count_});
    zero.state_count_ += piece.count;
    ++zero.shard_ends_[static_cast<size_t>(piece.bucket)];
  }
  for (size_t i = 1; i < zero.shard_ends_.size(); ++i) {
    zero.shard_ends_[i] += zero.shard_ends_[i - 1];
  }
  return zero;
}

absl::Status ZeroRedundancyOptimizer::Step(const Update& update, std::optional<Stream> stream) {
  if (update == nullptr) return absl::InvalidArgumentError("Step: the update is empty");
  absl::Status status = ddp_->CheckHasAverages("Step");
  if (!status.ok()) return status;
  ddp_->averages_ = DistributedDataParallel::Averages::kSpent;
  ddp_->averages_stream_ = stream.value_or(ddp_->averages_stream_);
  status = UpdateAndGather(update, ddp_->averages_stream_);
  if (!status.ok()) Abort(status);
  return status;
}

absl::Status ZeroRedundancyOptimizer::Call(const Update& update, const ParameterShard& shard) {
  const auto threw = [&](const std::string& what) {
    return absl::UnknownError(absl::StrCat(
        "the update of '", ddp_->parameters_[static_cast<size_t>(shard.parameter)].name, "' threw ",
        what));
  };
  try {
    return update(shard);
  } catch (const std::exception& error) {
    return threw(absl::StrCat("\"", error.what(), "\""));
  } catch (...) {
    return threw("what is no std::exception");
  }
}

// The others wait for this rank's part. In a capture nobody does: all hear it at its end.
void ZeroRedundancyOptimizer::Abort(const absl::Status& status) {
  Communicator& communicator = ddp_->communicator_;
  const internal::GraphCapture* capture = communicator.graph_capture();
  if (!communicator.error().ok() || (capture != nullptr && capture->is_capturing())) return;
  communicator.Abort(absl::StrCat("rank ", communicator.rank(), ": ", status.message()));
}

// The gradients' memory carries the parameters: what was updated goes to where its gradient was,
// from there to the other ranks, and all of a bucket from there to the parameters.
absl::Status ZeroRedundancyOptimizer::UpdateAndGather(const Update& update, Stream stream) {
  const BucketLayout& layout = ddp_->reducer_->layout();
  const size_t rank = static_cast<size_t>(ddp_->communicator_.rank());
  Buffer* const arena = ddp_->reducer_->arena();
  absl::Status status;
  std::vector<std::unique_ptr<Work>> works;
  size_t next = 0;
  for (size_t i = 0; status.ok() && i < layout.buckets.size(); ++i) {
    const Bucket& bucket = layout.buckets[i];
    for (; status.ok() && next < shard_ends_[i]; ++next) {
      const ParameterShard& shard = shards_[next];
      status = Call(update, shard);
      if (!status.ok() || layout.parts == 1) continue;
      status = arena->Copy(const_cast<void*>(shard.gradient), shard.values,
                           shard.count * SizeOf(shard.dtype), stream);
    }
    if (!status.ok() || layout.parts == 1 || bucket.count == 0) continue;
    const size_t each = bucket.count / static_cast<size_t>(layout.parts);
    char* const whole = static_cast<char*>(ddp_->reducer_->GradientPtr(bucket.parameters.front()));
    works.resize(i + 1);
    works[i] = ddp_->communicator_.AllGather(Advanced(whole, rank * each * SizeOf(bucket.dtype)),
                                             whole, each, bucket.dtype, stream);
  }
  // Every one is waited for, also after an error: each reads and writes the arena.
  for (size_t i = 0; i < works.size(); ++i) {
    if (works[i] == nullptr) continue;
    if (!status.ok()) Abort(status);
    status.Update(works[i]->WaitOn(stream));
    if (status.ok()) status = CopyOut(static_cast<int>(i), stream);
  }
  return status;
}

absl::Status ZeroRedundancyOptimizer::CopyOut(int bucket, Stream stream) {
  const BucketLayout& layout = ddp_->reducer_->layout();
  Buffer* const arena = ddp_->reducer_->arena();
  absl::Status status;
  for (const int id : layout.buckets[static_cast<size_t>(bucket)].parameters) {
    const internal::ModelTensor& parameter = ddp_->parameters_[static_cast<size_t>(id)];
    if (!status.ok() || parameter.count == 0) continue;
    status = arena->Copy(parameter.data, ddp_->GradientPtr(id),
                         parameter.count * SizeOf(parameter.dtype), stream);
  }
  return status;
}

absl::Status ZeroRedundancyOptimizer::CheckState(std::span<const Tensor> full, DType dtype) const {
  if (full.size() != ddp_->parameters_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("state of ", ddp_->parameters_.size(),
                                                   " parameters as ", full.size(),
                                                   " tensors: there must be one for each"));
  }
  for (size_t i = 0; i < full.size(); ++i) {
    const internal::ModelTensor& parameter = ddp_->parameters_[i];
    const bool is_there = full[i].data != nullptr || full[i].count == 0;
    if (is_there && full[i].count == parameter.count && full[i].dtype == dtype) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("state of parameter '", parameter.name, "', ", parameter.count, " x ",
                     Name(dtype), ", as the tensor '", full[i].name, "', ", full[i].count, " x ",
                     Name(full[i].dtype), is_there ? "" : ", which has no memory"));
  }
  return absl::OkStatus();
}

absl::Status ZeroRedundancyOptimizer::GatherState(const void* state, DType dtype,
                                                  std::span<const Tensor> full, int root) {
  Communicator& communicator = ddp_->communicator_.host();
  const BucketLayout& layout = ddp_->reducer_->layout();
  const bool is_root = communicator.rank() == root;
  absl::Status status;
  if (SizeOf(dtype) == 0)
    status = absl::InvalidArgumentError("state of a type that does not exist");
  if (status.ok() && state == nullptr && state_count_ > 0) {
    status =
        absl::InvalidArgumentError(absl::StrCat("state of ", state_count_, " elements on rank ",
                                                communicator.rank(), " is a null pointer"));
  }
  if (status.ok() && is_root) status = CheckState(full, dtype);
  status = internal::AgreeOnStatus(communicator, status);
  const size_t size = SizeOf(dtype);
  const std::vector<internal::ShardPiece> pieces =
      internal::ShardPiecesOf(layout, CountsOf(ddp_->parameters_), communicator.rank());
  std::vector<char> part, whole;
  for (size_t i = 0, next = 0; status.ok() && i < layout.buckets.size(); ++i) {
    const Bucket& bucket = layout.buckets[i];
    const size_t each = bucket.count / static_cast<size_t>(layout.parts);
    part.assign(each * size, 0);
    if (is_root) whole.resize(bucket.count * size);
    for (; next < shard_ends_[i]; ++next) {
      CopyBytes(part.data() + pieces[next].place * size,
                static_cast<const char*>(state) + shards_[next].offset * size,
                pieces[next].count * size);
    }
    status = communicator.Gather(part.data(), whole.data(), each, dtype, root)->Wait();
    if (!status.ok() || !is_root) continue;
    for (const int id : bucket.parameters) {
      const Tensor& tensor = full[static_cast<size_t>(id)];
      CopyBytes(tensor.data, whole.data() + internal::PlaceInBucket(layout, bucket, id) * size,
                tensor.count * size);
    }
  }
  return status;
}

absl::Status ZeroRedundancyOptimizer::TakeState(std::span<const Tensor> full, void* state) const {
  const DType dtype = full.empty() ? DType::kFloat32 : full[0].dtype;
  if (absl::Status status = CheckState(full, dtype); !status.ok()) return status;
  if (state == nullptr && state_count_ > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("state of ", state_count_, " elements to a null pointer"));
  }
  const size_t size = SizeOf(dtype);
  for (const ParameterShard& shard : shards_) {
    const Tensor& tensor = full[static_cast<size_t>(shard.parameter)];
    CopyBytes(static_cast<char*>(state) + shard.offset * size,
              static_cast<const char*>(tensor.data) + shard.begin * size, shard.count * size);
  }
  return absl::OkStatus();
}

}  // namespace ddp
