#include "worker_runtime/unused_parameters.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"

namespace ddp::internal {

absl::StatusOr<std::unique_ptr<UnusedParameters>> UnusedParameters::Create(
    Communicator& communicator, const GradientMemory& memory, bool is_static) {
  std::unique_ptr<UnusedParameters> made(new UnusedParameters(communicator, memory, is_static));
  if (is_static || !made->is_on_gpu()) return made;
  // All ranks allocate a GPU's memory together, and none knows before a pass what the others will
  // not use in it: so there is room for all gradients.
  size_t bytes = 0;
  for (const Slot& slot : made->slots_) bytes += slot.bytes;
  if (absl::Status status = made->Reserve(bytes); !status.ok()) return status;
  return made;
}

UnusedParameters::UnusedParameters(Communicator& communicator, const GradientMemory& memory,
                                   bool is_static)
    : communicator_(communicator), is_static_(is_static), is_used_(memory.gradients().size(), 0) {
  for (size_t i = 0; i < is_used_.size(); ++i) {
    const GradientSpec& gradient = memory.gradients()[i];
    slots_.push_back({.data = static_cast<char*>(memory.At(static_cast<int>(i))),
                      .bytes = gradient.count * SizeOf(gradient.dtype)});
  }
}

// The communicator's thread must be out of the bytes before they go.
UnusedParameters::~UnusedParameters() {
  if (work_ != nullptr) work_->Wait().IgnoreError();
}

absl::Status UnusedParameters::Reserve(size_t bytes) {
  if (!is_on_gpu()) {
    kept_on_host_.resize(std::max(kept_on_host_.size(), bytes));
    return absl::OkStatus();
  }
  const size_t room = kept_on_device_ == nullptr ? 0 : kept_on_device_->bytes();
  if (bytes <= room) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<Buffer>> allocated = communicator_.Allocate(bytes);
  if (!allocated.ok()) {
    return absl::Status(
        allocated.status().code(),
        absl::StrCat("allocate ", bytes, " bytes to keep the gradients of unused parameters: ",
                     allocated.status().message()));
  }
  kept_on_device_ = *std::move(allocated);
  return absl::OkStatus();
}

char* UnusedParameters::Aside() {
  return is_on_gpu() ? static_cast<char*>(kept_on_device_->data()) : kept_on_host_.data();
}

absl::Status UnusedParameters::Copy(void* to, const void* from, size_t bytes, Stream stream) {
  if (is_on_gpu()) return kept_on_device_->Copy(to, from, bytes, stream);
  std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status UnusedParameters::Keep(Stream stream) {
  absl::Status status;
  if (is_static_ && !is_settled_) {
    Launch();
    status = AwaitExchange();
  }
  if (!status.ok()) return status;
  kept_.clear();
  size_t bytes = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (is_used_[i] != 0 || slots_[i].bytes == 0) continue;
    kept_.push_back(i);
    bytes += slots_[i].bytes;
  }
  if (kept_.empty()) return status;
  status = Reserve(bytes);
  if (!status.ok()) return status;
  char* aside = Aside();
  for (const size_t i : kept_) {
    if (status.ok()) status = Copy(aside, slots_[i].data, slots_[i].bytes, stream);
    aside += slots_[i].bytes;
  }
  return status;
}

void UnusedParameters::Launch() {
  if (is_settled_) return;
  DDP_CHECK(work_ == nullptr);
  if (is_static_) {
    is_unused_here_.clear();
    for (const uint8_t is_used : is_used_) is_unused_here_.push_back(is_used == 0);
  }
  work_ = communicator_.host().AllReduce(is_used_.data(), is_used_.size(), DType::kUint8,
                                         ReduceOp::kMax);
}

absl::Status UnusedParameters::AwaitExchange() {
  if (is_settled_) return absl::OkStatus();
  const absl::Status status = std::exchange(work_, nullptr)->Wait();
  is_settled_ = status.ok() && is_static_;
  return status;
}

absl::Status UnusedParameters::Restore(Stream stream) {
  absl::Status status = AwaitExchange();
  if (!status.ok()) return status;
  const char* aside = kept_.empty() ? nullptr : Aside();
  for (const size_t i : kept_) {
    const Slot& slot = slots_[i];
    if (status.ok() && is_used_[i] == 0) status = Copy(slot.data, aside, slot.bytes, stream);
    aside += slot.bytes;
  }
  kept_.clear();
  was_used_ = is_used_;
  if (!is_settled_) std::fill(is_used_.begin(), is_used_.end(), uint8_t{0});
  return status;
}

}  // namespace ddp::internal
