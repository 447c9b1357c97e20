// DistributedDataParallel up to the first pass: what it is told of the model.
#include <memory>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ddp/distributed_data_parallel.h"
#include "worker_runtime/comm/graph_capture.h"
#include "worker_runtime/gradient_memory.h"
#include "worker_runtime/gradient_reducer.h"
#include "worker_runtime/gradient_shards.h"
#include "worker_runtime/half_casts.h"
#include "worker_runtime/model_tensors.h"
#include "worker_runtime/parameter_check.h"

namespace ddp {
namespace {

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

}  // namespace

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
  if (status.ok() && options_.shard_gradients) status = internal::CheckNotTied(parameters_);
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

// Whether the options go together; they are the same on all ranks.
absl::Status DistributedDataParallel::CheckOptions() const {
  if (options_.rebuild_buckets && finds_unused_parameters() && !options_.static_graph) {
    return absl::InvalidArgumentError(
        "rebuild_buckets with find_unused_parameters: passes may use other parameters than the "
        "first, whose order would count; use static_graph, or do without one of the two");
  }
  if (options_.shard_gradients && (options_.rebuild_buckets || !own_gradients_.empty())) {
    return absl::InvalidArgumentError(
        "shard_gradients with rebuild_buckets, or with gradients in memory of the program's own: a "
        "bucket that is divided among the ranks lies in one piece; do without one of the two");
  }
  return absl::OkStatus();
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
  const internal::GradientChoices choices{
      .limits = {.first_bytes = options_.first_bucket_bytes,
                 .cap_bytes = options_.bucket_cap_bytes,
                 .parts = options_.shard_gradients ? communicator_.world_size() : 1},
      .wire_type = WireTypeOf(options_.compression),
      .find_unused_parameters = options_.find_unused_parameters,
      .broadcast_buffers = options_.broadcast_buffers,
      .static_graph = options_.static_graph,
      .adopts_gradients = !own_gradients_.empty(),
      .rebuild_buckets = options_.rebuild_buckets,
      .shard_gradients = options_.shard_gradients};
  absl::Status status = internal::CheckSameParameters(communicator_.host(), descriptions, choices);
  if (!status.ok()) return status;
  if (status = CheckOptions(); !status.ok()) return status;
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
  if (finds_unused_parameters()) status = (*reducer)->FindUnusedParameters(options_.static_graph);
  if (!status.ok()) return status;
  reducer_ = *std::move(reducer);
  if (internal::GraphCapture* capture = communicator_.graph_capture();
      capture != nullptr && options_.shard_gradients) {
    // What was zeroed, averaged or updated in a capture that is discarded never was.
    const auto before = std::make_shared<std::pair<Averages, Stream>>();
    capture->on_begin[this] = [this, before] { *before = {averages_, averages_stream_}; };
    capture->on_discard[this] = [this, before] { std::tie(averages_, averages_stream_) = *before; };
  }
  if (options_.rebuild_buckets) reducer_->RebuildBuckets(choices.limits);
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

}  // namespace ddp
