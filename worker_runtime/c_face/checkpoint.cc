// Checkpoints of ddp/c.h.
#include "ddp/checkpoint.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ddp/c.h"
#include "worker_runtime/c_face/convert.h"

struct ddp_checkpoint {
  ddp_checkpoint(ddp::Communicator& communicator, ddp::CheckpointOptions options)
      : checkpoint(communicator, std::move(options)) {}

  ddp::Checkpoint checkpoint;
  // What the last load returned, and where its caller finds its extra.
  ddp::TrainingState loaded;
  std::vector<ddp_extra> extra;
};

namespace ddp::internal {
namespace {

constexpr int kFilesKept = 3;

absl::StatusOr<TrainingState> StateOf(const char* call, const ddp_training_state* given) {
  absl::Status status = CheckPointers(call, {{"state", given}});
  if (!status.ok()) return status;
  TrainingState state{.step = given->step,
                      .sampler = {.epoch = given->epoch, .samples_taken = given->samples_taken},
                      .extra = {}};
  if (given->extra_count > 0) status = CheckPointers(call, {{"extra", given->extra}});
  for (size_t i = 0; status.ok() && i < given->extra_count; ++i) {
    const ddp_extra& extra = given->extra[i];
    status = CheckPointers(call, {{"name of an extra", extra.name}});
    if (status.ok() && extra.size > 0) status = CheckPointers(call, {{extra.name, extra.data}});
    if (!status.ok()) break;
    const std::string value(extra.size == 0 ? "" : static_cast<const char*>(extra.data),
                            extra.size);
    if (!state.extra.emplace(extra.name, value).second) {
      status = absl::InvalidArgumentError(
          absl::StrCat(call, ": two extras are called `", extra.name, "`"));
    }
  }
  if (!status.ok()) return status;
  return state;
}

// Gives `state` what `checkpoint` has loaded.
void Show(ddp_checkpoint* checkpoint, ddp_training_state* state) {
  const TrainingState& loaded = checkpoint->loaded;
  for (const auto& [name, value] : loaded.extra) {
    checkpoint->extra.push_back({name.c_str(), value.data(), value.size()});
  }
  *state = {loaded.step, loaded.sampler.epoch, loaded.sampler.samples_taken,
            checkpoint->extra.data(), checkpoint->extra.size()};
}

}  // namespace
}  // namespace ddp::internal

using ddp::internal::CheckPointers;
using ddp::internal::Guarded;

ddp_code ddp_checkpoint_create(ddp_communicator* communicator, const char* directory, int keep,
                               ddp_checkpoint** checkpoint) {
  return Guarded([&] {
    constexpr char kCall[] = "ddp_checkpoint_create";
    absl::Status status = CheckPointers(kCall, {{"checkpoint", checkpoint}});
    if (!status.ok()) return status;
    *checkpoint = nullptr;
    status = CheckPointers(kCall, {{"communicator", communicator}, {"directory", directory}});
    if (!status.ok()) return status;
    if (keep < 0) {
      return absl::InvalidArgumentError(absl::StrCat(kCall, ": cannot keep ", keep, " files"));
    }
    *checkpoint = new ddp_checkpoint(
        *ddp::internal::CommunicatorOf(communicator),
        {.directory = directory, .keep = keep == 0 ? ddp::internal::kFilesKept : keep});
    return absl::OkStatus();
  });
}

void ddp_checkpoint_free(ddp_checkpoint* checkpoint) { delete checkpoint; }

ddp_code ddp_checkpoint_check_writable(ddp_checkpoint* checkpoint) {
  return Guarded([&] {
    absl::Status status =
        CheckPointers("ddp_checkpoint_check_writable", {{"checkpoint", checkpoint}});
    return status.ok() ? checkpoint->checkpoint.CheckWritable() : status;
  });
}

ddp_code ddp_checkpoint_save(ddp_checkpoint* checkpoint, const ddp_training_state* state,
                             const ddp_tensor* tensors, size_t count) {
  return Guarded([&] {
    constexpr char kCall[] = "ddp_checkpoint_save";
    absl::Status status = CheckPointers(kCall, {{"checkpoint", checkpoint}});
    if (!status.ok()) return status;
    const auto copied = ddp::internal::StateOf(kCall, state);
    if (!copied.ok()) return copied.status();
    const auto arrays = ddp::internal::TensorsOf(kCall, tensors, count);
    if (!arrays.ok()) return arrays.status();
    return checkpoint->checkpoint.Save(*copied, *arrays);
  });
}

ddp_code ddp_checkpoint_load_latest(ddp_checkpoint* checkpoint, const ddp_tensor* tensors,
                                    size_t count, ddp_training_state* state, int* is_found) {
  return Guarded([&] {
    constexpr char kCall[] = "ddp_checkpoint_load_latest";
    absl::Status status = CheckPointers(
        kCall, {{"checkpoint", checkpoint}, {"state", state}, {"is_found", is_found}});
    if (!status.ok()) return status;
    const auto arrays = ddp::internal::TensorsOf(kCall, tensors, count);
    if (!arrays.ok()) return arrays.status();
    checkpoint->extra.clear();
    auto loaded = checkpoint->checkpoint.LoadLatest(*arrays);
    if (!loaded.ok()) return loaded.status();
    *is_found = loaded->has_value() ? 1 : 0;
    if (!loaded->has_value()) return absl::OkStatus();
    checkpoint->loaded = **std::move(loaded);
    ddp::internal::Show(checkpoint, state);
    return absl::OkStatus();
  });
}

const char* ddp_checkpoint_latest(const ddp_checkpoint* checkpoint) {
  return checkpoint == nullptr ? "" : checkpoint->checkpoint.latest().c_str();
}
