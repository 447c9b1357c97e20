// Part of ddp/torch.h: which tensors a module of libtorch has, and whether they can be reduced.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_TORCH_TENSORS_H_
#define DDPRUN_WORKER_RUNTIME_DDP_TORCH_TENSORS_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ddp/dtype.h"
#include "ddp/process_group.h"

namespace ddp::torch::internal {

[[noreturn]] inline void Throw(const std::string& text) { C10_THROW_ERROR(Error, text); }

inline void Check(const absl::Status& status) {
  if (!status.ok()) Throw(std::string(status.message()));
}

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  // Its address when it was registered.
  void* data = nullptr;
};

struct ModelParts {
  std::vector<NamedTensor> parameters;  // that require a gradient
  std::vector<NamedTensor> frozen;      // parameters that do not
  std::vector<NamedTensor> buffers;
  std::string error;  // why the module cannot be trained so; empty: it can
};

inline at::Device DeviceOf(ProcessGroup& group) {
  return group.communicator().device_type() == DeviceType::kCuda
             ? at::Device(at::kCUDA, static_cast<at::DeviceIndex>(group.gpu()))
             : at::Device(at::kCPU);
}

// Empty for a type that is not averaged.
inline std::optional<DType> DTypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DType::kFloat32;
    case at::kDouble:
      return DType::kFloat64;
    case at::kHalf:
      return DType::kFloat16;
    case at::kBFloat16:
      return DType::kBFloat16;
    default:
      return std::nullopt;
  }
}

// A name that differs if two ranks' tensors do: elements travel in the order of the memory.
inline std::string Describe(const NamedTensor& named) {
  const at::Tensor& tensor = named.tensor;
  std::string text = absl::StrCat(named.name, " [", absl::StrJoin(tensor.sizes(), ", "), "]");
  if (!DTypeOf(tensor).has_value()) absl::StrAppend(&text, " ", at::toString(tensor.scalar_type()));
  if (tensor.is_contiguous()) return text;
  return absl::StrCat(text, " in steps of [", absl::StrJoin(tensor.strides(), ", "), "]");
}

// Why the elements of a tensor cannot travel as one piece of memory. Empty: they can.
inline std::string WhyNotInOnePiece(const at::Tensor& tensor, at::Device device) {
  if (tensor.layout() != at::kStrided) {
    return absl::StrCat("is not dense: its layout is ", c10::str(tensor.layout()));
  }
  if (tensor.device() != device) {
    return absl::StrCat("is on ", tensor.device().str(), ", and this rank's group is for ",
                        device.str(), ": move the module there before it is wrapped");
  }
  if (!tensor.is_non_overlapping_and_dense()) {
    return "has gaps or repeats in its memory, as a slice of another tensor: make it contiguous()";
  }
  return "";
}

// Names two tensors that share memory, such as two parameters of one storage. Each would get a
// gradient of its own, and rank 0's values would arrive twice.
inline std::string WhichOverlap(std::vector<NamedTensor> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const NamedTensor& a, const NamedTensor& b) {
    return std::less<>()(a.data, b.data);
  });
  const NamedTensor* last = nullptr;
  for (const NamedTensor& named : tensors) {
    if (named.tensor.numel() == 0) continue;
    if (last != nullptr &&
        std::less<>()(named.data, static_cast<char*>(last->data) + last->tensor.nbytes())) {
      return absl::StrCat("'", last->name, "' and '", named.name,
                          "' share memory, and are two tensors: register one tensor for both");
    }
    last = &named;
  }
  return "";
}

// In the order of the module's own lists. A tensor with two names counts once.
inline ModelParts PartsOf(const ::torch::nn::Module& module, at::Device device) {
  ModelParts parts;
  std::set<const at::TensorImpl*> seen;
  std::vector<NamedTensor> all;
  const auto add = [&](std::vector<NamedTensor>& to, const char* kind, const auto& item) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) return;
    std::string why = WhyNotInOnePiece(tensor, device);
    if (why.empty() && &to == &parts.parameters && !DTypeOf(tensor).has_value()) {
      why = absl::StrCat("is ", at::toString(tensor.scalar_type()),
                         ", and gradients are averaged in float32, float64, float16 and bfloat16");
    }
    if (!why.empty()) {
      if (parts.error.empty()) parts.error = absl::StrCat(kind, " '", item.key(), "' ", why);
      return;
    }
    to.push_back({.name = item.key(), .tensor = tensor, .data = tensor.data_ptr()});
    all.push_back(to.back());
  };
  for (const auto& item : module.named_parameters()) {
    add(item.value().requires_grad() ? parts.parameters : parts.frozen, "parameter", item);
  }
  for (const auto& item : module.named_buffers()) add(parts.buffers, "buffer", item);
  if (parts.error.empty()) parts.error = WhichOverlap(std::move(all));
  if (parts.error.empty() && parts.parameters.empty()) {
    parts.error = absl::StrCat("it has ", parts.frozen.size(),
                               " parameters and none of them requires a gradient: nothing is to be "
                               "reduced; use the module itself");
  }
  if (!parts.error.empty()) {
    parts.error = absl::StrCat("wrap the module ", module.name(), ": ", parts.error);
  }
  return parts;
}

}  // namespace ddp::torch::internal

#endif  // DDPRUN_WORKER_RUNTIME_DDP_TORCH_TENSORS_H_
