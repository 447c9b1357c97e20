// ZeRO of ddp/c.h.
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ddp/c.h"
#include "ddp/zero_redundancy_optimizer.h"
#include "worker_runtime/c_face/answer.h"
#include "worker_runtime/c_face/convert.h"
#include "worker_runtime/c_face/model.h"

struct ddp_zero {
  ddp_zero(ddp_model* of, ddp::ZeroRedundancyOptimizer made)
      : model(of), optimizer(std::move(made)) {}

  ddp_model* const model;
  ddp::ZeroRedundancyOptimizer optimizer;
};

using ddp::internal::CheckPointers;
using ddp::internal::Guarded;

ddp_code ddp_zero_create(ddp_model* model, ddp_zero** zero) {
  return Guarded([&] {
    absl::Status status = CheckPointers("ddp_zero_create", {{"zero", zero}});
    if (!status.ok()) return status;
    *zero = nullptr;
    status = CheckPointers("ddp_zero_create", {{"model", model}});
    if (!status.ok()) return status;
    auto made = ddp::ZeroRedundancyOptimizer::Create(model->ddp);
    if (made.ok()) *zero = new ddp_zero(model, *std::move(made));
    return made.status();
  });
}

void ddp_zero_free(ddp_zero* zero) { delete zero; }

size_t ddp_zero_state_count(const ddp_zero* zero) {
  return zero == nullptr ? 0 : zero->optimizer.state_count();
}

ddp_code ddp_zero_step(ddp_zero* zero, ddp_update update, void* context) {
  return Guarded([&] {
    absl::Status status = CheckPointers(
        "ddp_zero_step", {{"zero", zero}, {"update", reinterpret_cast<const void*>(update)}});
    if (!status.ok()) return status;
    const auto call = [&](const ddp::ParameterShard& shard) {
      const ddp_shard shown = {.parameter = shard.parameter,
                               .begin = shard.begin,
                               .count = shard.count,
                               .dtype = static_cast<ddp_dtype>(shard.dtype),
                               .values = shard.values,
                               .gradient = shard.gradient,
                               .offset = shard.offset};
      return ddp::internal::Answered(
                 absl::StrCat("the program's update of parameter ", shard.parameter),
                 [&](ddp_answer* answer) { return update(context, &shown, answer); })
          .status();
    };
    return zero->optimizer.Step(call, zero->model->stream);
  });
}

ddp_code ddp_zero_gather_state(ddp_zero* zero, const void* state, ddp_dtype dtype,
                               const ddp_tensor* full, size_t count, int root) {
  return Guarded([&] {
    constexpr char kCall[] = "ddp_zero_gather_state";
    absl::Status status = CheckPointers(kCall, {{"zero", zero}});
    if (!status.ok()) return status;
    const auto type = ddp::internal::DTypeOf(dtype);
    if (!type.ok()) return type.status();
    const auto tensors = ddp::internal::TensorsOf(kCall, full, count);
    if (!tensors.ok()) return tensors.status();
    return zero->optimizer.GatherState(state, *type, *tensors, root);
  });
}

ddp_code ddp_zero_take_state(const ddp_zero* zero, const ddp_tensor* full, size_t count,
                             void* state) {
  return Guarded([&] {
    constexpr char kCall[] = "ddp_zero_take_state";
    absl::Status status = CheckPointers(kCall, {{"zero", zero}});
    if (!status.ok()) return status;
    const auto tensors = ddp::internal::TensorsOf(kCall, full, count);
    if (!tensors.ok()) return tensors.status();
    return zero->optimizer.TakeState(*tensors, state);
  });
}
