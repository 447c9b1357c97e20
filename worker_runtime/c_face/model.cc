// DistributedDataParallel of ddp/c.h.
#include "worker_runtime/c_face/model.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/c.h"
#include "ddp/distributed_data_parallel.h"
#include "worker_runtime/c_face/convert.h"

namespace ddp::internal {
namespace {

static_assert(static_cast<int>(GradientCompression::kNone) == DDP_COMPRESSION_NONE);
static_assert(static_cast<int>(GradientCompression::kFloat16) == DDP_COMPRESSION_FLOAT16);
static_assert(static_cast<int>(GradientCompression::kBFloat16) == DDP_COMPRESSION_BFLOAT16);

absl::StatusOr<DistributedDataParallelOptions> OptionsOf(const ddp_model_options* given) {
  DistributedDataParallelOptions options;
  if (given == nullptr) return options;
  const auto compression = ChoiceOf("compression", given->compression, DDP_COMPRESSION_BFLOAT16);
  if (!compression.ok()) return compression.status();
  options.compression = static_cast<GradientCompression>(*compression);
  if (given->bucket_cap_bytes != 0) options.bucket_cap_bytes = given->bucket_cap_bytes;
  if (given->first_bucket_bytes != 0) options.first_bucket_bytes = given->first_bucket_bytes;
  options.find_unused_parameters = given->find_unused_parameters != 0;
  options.static_graph = given->static_graph != 0;
  options.rebuild_buckets = given->rebuild_buckets != 0;
  options.stream = given->stream;
  options.shard_gradients = given->shard_gradients != 0;
  return options;
}

}  // namespace
}  // namespace ddp::internal

using ddp::DistributedDataParallel;
using ddp::internal::CheckPointers;
using ddp::internal::Guarded;
using ddp::internal::Used;

ddp_code ddp_model_create(ddp_communicator* communicator, const ddp_model_options* options,
                          ddp_model** model) {
  return Guarded([&] {
    absl::Status status = CheckPointers("ddp_model_create", {{"model", model}});
    if (!status.ok()) return status;
    *model = nullptr;
    status = CheckPointers("ddp_model_create", {{"communicator", communicator}});
    if (!status.ok()) return status;
    const auto checked = ddp::internal::OptionsOf(options);
    if (!checked.ok()) return checked.status();
    *model = new ddp_model(*ddp::internal::CommunicatorOf(communicator), *checked);
    return absl::OkStatus();
  });
}

void ddp_model_free(ddp_model* model) { delete model; }

int ddp_model_add_parameter(ddp_model* model, const char* name, void* data, size_t count,
                            ddp_dtype dtype, void* gradient) {
  int id = -1;
  (void)Guarded([&] {
    absl::Status status =
        CheckPointers("ddp_model_add_parameter", {{"model", model}, {"name", name}});
    if (!status.ok()) return status;
    const auto type = ddp::internal::DTypeOf(dtype);
    if (!type.ok()) return type.status();
    id = gradient == nullptr ? model->ddp.AddParameter(name, data, count, *type)
                             : model->ddp.AddParameter(name, data, count, *type,
                                                       {.data = gradient, .count = count});
    return absl::OkStatus();
  });
  return id;
}

ddp_code ddp_model_add_buffer(ddp_model* model, const char* name, void* data, size_t count,
                              ddp_dtype dtype) {
  return Used(__func__, model, [&](DistributedDataParallel& ddp) {
    absl::Status status = CheckPointers("ddp_model_add_buffer", {{"name", name}});
    if (!status.ok()) return status;
    const auto type = ddp::internal::DTypeOf(dtype);
    if (!type.ok()) return type.status();
    ddp.AddBuffer(name, data, count, *type);
    return absl::OkStatus();
  });
}

ddp_code ddp_model_finalize(ddp_model* model) {
  return Used(__func__, model, [](DistributedDataParallel& ddp) { return ddp.Finalize(); });
}

ddp_code ddp_model_set_stream(ddp_model* model, ddp_stream stream) {
  return Used(__func__, model, [&](DistributedDataParallel&) {
    model->stream = stream;
    return absl::OkStatus();
  });
}

void* ddp_model_gradient(const ddp_model* model, int id) {
  return model == nullptr ? nullptr : model->ddp.GradientPtr(id);
}

ddp_code ddp_model_gradient_ready(ddp_model* model, int id) {
  return Used(__func__, model,
              [&](DistributedDataParallel& ddp) { return ddp.GradientReady(id, model->stream); });
}

ddp_code ddp_model_finish(ddp_model* model) {
  return Used(__func__, model,
              [&](DistributedDataParallel& ddp) { return ddp.Finish(model->stream); });
}

ddp_code ddp_model_broadcast_buffers(ddp_model* model) {
  return Used(__func__, model,
              [&](DistributedDataParallel& ddp) { return ddp.BroadcastBuffers(model->stream); });
}

ddp_code ddp_model_zero_grad(ddp_model* model) {
  return Used(__func__, model,
              [&](DistributedDataParallel& ddp) { return ddp.ZeroGrad(model->stream); });
}

ddp_code ddp_model_set_no_sync(ddp_model* model, int is_active) {
  return Used(__func__, model, [&](DistributedDataParallel& ddp) {
    model->no_sync.reset();
    if (is_active != 0) model->no_sync.emplace(ddp.NoSync());
    return absl::OkStatus();
  });
}

ddp_code ddp_model_clip_grad_norm(ddp_model* model, double max_norm, double norm_type,
                                  double* norm) {
  return Used(__func__, model, [&](DistributedDataParallel& ddp) {
    const auto had = ddp.ClipGradNorm(max_norm, norm_type, false, model->stream);
    if (had.ok() && norm != nullptr) *norm = *had;
    return had.status();
  });
}

ddp_code ddp_model_count_non_finite(ddp_model* model, size_t* count) {
  return Used(__func__, model, [&](DistributedDataParallel& ddp) {
    absl::Status status = CheckPointers("ddp_model_count_non_finite", {{"count", count}});
    if (!status.ok()) return status;
    const auto found = ddp.CountNonFinite(model->stream);
    if (found.ok()) *count = *found;
    return found.status();
  });
}

ddp_code ddp_model_join(ddp_model* model, int is_over_active) {
  return Used(__func__, model, [&](DistributedDataParallel& ddp) {
    auto join = ddp.Join(is_over_active == 0, model->stream);
    if (join.ok()) model->join.emplace(*std::move(join));
    return join.status();
  });
}

ddp_code ddp_model_join_wait(ddp_model* model) {
  return Used(__func__, model, [&](DistributedDataParallel&) -> absl::Status {
    if (!model->join.has_value()) {
      return absl::FailedPreconditionError(
          "ddp_model_join_wait: there is no Join to wait for; call ddp_model_join() before the "
          "first batch");
    }
    absl::Status status = model->join->Wait();
    model->join.reset();
    return status;
  });
}

ddp_code ddp_model_last_reduction(const ddp_model* model, ddp_reduction_times* times) {
  return Guarded([&] {
    absl::Status status =
        CheckPointers("ddp_model_last_reduction", {{"model", model}, {"times", times}});
    if (!status.ok()) return status;
    const ddp::ReductionTimes last = model->ddp.last_reduction();
    *times = {last.communication.count(), last.Exposed().count()};
    return absl::OkStatus();
  });
}
