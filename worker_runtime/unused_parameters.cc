#include "worker_runtime/unused_parameters.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/check.h"

namespace ddp::internal {

UnusedParameters::UnusedParameters(Communicator& communicator, const GradientMemory& memory,
                                   bool is_static)
    : communicator_(communicator), is_static_(is_static), is_used_(memory.gradients().size(), 0) {
  DDP_CHECK(communicator.device_type() == DeviceType::kCpu);
  for (size_t i = 0; i < is_used_.size(); ++i) {
    const GradientSpec& gradient = memory.gradients()[i];
    slots_.push_back({.data = static_cast<char*>(memory.At(static_cast<int>(i))),
                      .bytes = gradient.count * SizeOf(gradient.dtype)});
  }
}

void UnusedParameters::Keep() {
  kept_.clear();
  kept_values_.clear();
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (is_used_[i] != 0 || slots_[i].bytes == 0) continue;
    kept_.push_back(i);
    kept_values_.insert(kept_values_.end(), slots_[i].data, slots_[i].data + slots_[i].bytes);
  }
}

void UnusedParameters::Launch() {
  if (is_static_) {
    for (const uint8_t is_used : is_used_) is_unused_here_.push_back(is_used == 0);
  }
  work_ = communicator_.AllReduce(is_used_.data(), is_used_.size(), DType::kUint8, ReduceOp::kMax);
}

absl::Status UnusedParameters::Restore() {
  if (!is_settled_) {
    const absl::Status status = std::exchange(work_, nullptr)->Wait();
    if (!status.ok()) return status;
    is_settled_ = is_static_;
  }
  const char* value = kept_values_.data();
  for (const size_t i : kept_) {
    if (is_used_[i] == 0) std::copy(value, value + slots_[i].bytes, slots_[i].data);
    value += slots_[i].bytes;
  }
  kept_.clear();
  kept_values_.clear();
  if (!is_settled_) std::fill(is_used_.begin(), is_used_.end(), uint8_t{0});
  return absl::OkStatus();
}

}  // namespace ddp::internal
