// Part of ddp/torch.h: connects autograd with the library's reduction.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_TORCH_GRADIENTS_H_
#define DDPRUN_WORKER_RUNTIME_DDP_TORCH_GRADIENTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/process_group.h"
#include "ddp/torch_tensors.h"

namespace ddp::torch::internal {

// A module's gradients in the library's memory. A hook after each parameter's AccumulateGrad node,
// as in PyTorch's own reducer, announces the gradient. A callback of autograd's engine ends the
// pass. Both run on the thread of backward(), or with CUDA on a thread of the engine.
class Gradients {
 public:
  Gradients(const ::torch::nn::Module& module, ProcessGroup& group,
            DistributedDataParallelOptions options)
      : communicator_(group.communicator()),
        device_(DeviceOf(group)),
        finds_unused_(options.find_unused_parameters || options.static_graph) {
    ModelParts parts = PartsOf(module, device_);
    if (options.shard_gradients) {
      parts.error = "shard_gradients: an optimizer of libtorch needs all averages; do without it";
    }
    if (!parts.error.empty()) Fail(parts.error);
    options.stream = CurrentStream();
    ddp_.emplace(communicator_, options);
    for (const NamedTensor& named : parts.parameters) {
      ddp_->AddParameter(Describe(named), named.data, static_cast<size_t>(named.tensor.numel()),
                         *DTypeOf(named.tensor));
    }
    for (const NamedTensor& named : parts.buffers) {
      ddp_->AddBuffer(Describe(named), named.data, named.tensor.nbytes(), DType::kUint8);
    }
    Check(ddp_->Finalize());
    CheckSameFrozen(parts.frozen);
    for (const NamedTensor& named : parts.frozen) {
      Check(communicator_
                .Broadcast(named.data, named.tensor.nbytes(), DType::kUint8, /*root=*/0,
                           CurrentStream())
                ->Wait());
    }
    buffers_ = std::move(parts.buffers);
    frozen_ = std::move(parts.frozen);
    for (NamedTensor& named : parts.parameters) Attach(std::move(named));
  }

  ~Gradients() {
    if (const auto pass = pass_.lock()) pass->owner = nullptr;
    for (Parameter& parameter : parameters_) {
      parameter.accumulator->del_post_hook(parameter.hook);
      LeaveToProgram(parameter.gradient);
    }
  }
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  ddp::DistributedDataParallel& ddp() { return *ddp_; }

  // Call it before each forward pass.
  void PrepareForward() {
    if (!error_.empty()) Throw(error_);
    for (const Parameter& parameter : parameters_) CheckStays("parameter", parameter.named);
    for (const NamedTensor& buffer : buffers_) CheckStays("buffer", buffer);
    for (const NamedTensor& named : frozen_) CheckStaysFrozen(named);
    const bool is_training = at::GradMode::is_enabled();
    if (is_training) {
      library_no_sync_.reset();
      if (no_sync_depth_ > 0) library_no_sync_.emplace(ddp_->NoSync());
    }
    if (buffers_.empty()) return;
    // As in Python, no broadcast is due after a forward pass without gradients.
    const auto no_sync = ddp_->NoSync(!is_training);
    Check(ddp_->BroadcastBuffers(CurrentStream()));
  }

  struct LeaveNoSync {
    void operator()(int* depth) const { --*depth; }
  };
  using NoSyncGuard = std::unique_ptr<int, LeaveNoSync>;
  NoSyncGuard NoSync(bool is_active) {
    if (!is_active) return nullptr;
    ++no_sync_depth_;
    return NoSyncGuard(&no_sync_depth_);
  }

  // Null on the CPU.
  Stream CurrentStream() const {
    return device_.is_cpu() ? nullptr : StreamOfThread().native_handle();
  }

 private:
  // A shared_ptr until PyTorch 2.12, and an intrusive_ptr since.
  using NodePtr = decltype(::torch::autograd::impl::grad_accumulator(at::Tensor()));

  struct Parameter {
    NamedTensor named;
    int id;
    at::Tensor gradient;  // the library's memory
    NodePtr accumulator;  // a tensor does not keep its own alive
    uintptr_t hook;
    // In the last synchronised pass.
    bool has_come = false;
    bool is_filled_in = false;  // before its first gradient
  };

  class Hook : public ::torch::autograd::FunctionPostHook {
   public:
    Hook(Gradients& owner, Parameter& parameter) : owner_(owner), parameter_(parameter) {}
    ::torch::autograd::variable_list operator()(
        const ::torch::autograd::variable_list& outputs,
        const ::torch::autograd::variable_list& /*inputs*/) override {
      owner_.OnGradient(parameter_);
      return outputs;
    }

   private:
    Gradients& owner_;
    Parameter& parameter_;
  };

  // Autograd owns it during a backward pass. It drops it when the pass ends, by its callback or by
  // an exception.
  struct Pass {
    Gradients* owner;
    ~Pass() {
      if (owner != nullptr) owner->Abandon();
    }
  };

  at::Stream StreamOfThread() const {
    return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  }

  void Attach(NamedTensor named) {
    Parameter& parameter = parameters_.emplace_back();
    const int id = static_cast<int>(parameters_.size()) - 1;
    const at::Tensor& tensor = named.tensor;
    parameter = {
        .named = named,
        .id = id,
        .gradient = at::from_blob(
            ddp_->GradientPtr(id), tensor.sizes(), tensor.strides(),
            /*storage_offset=*/0, [](void*) {}, tensor.options().requires_grad(false), device_),
        .accumulator = ::torch::autograd::impl::grad_accumulator(tensor),
        .hook = 0};
    parameter.hook = parameter.accumulator->add_post_hook(std::make_unique<Hook>(*this, parameter));
  }

  // Finalize() has compared the parameters that require a gradient, and the buffers.
  void CheckSameFrozen(const std::vector<NamedTensor>& frozen) {
    const auto text_of = [](const NamedTensor& named) {
      return absl::StrCat(Describe(named), " ", at::toString(named.tensor.scalar_type()));
    };
    const std::vector<std::string> first = FromRankZero(absl::StrJoin(
        frozen, "\n", [&](std::string* out, const NamedTensor& each) { *out += text_of(each); }));
    for (size_t i = 0; i < std::max(first.size(), frozen.size()); ++i) {
      const std::string here =
          i < frozen.size() ? absl::StrCat("'", text_of(frozen[i]), "'") : "none";
      const std::string there = i < first.size() ? absl::StrCat("'", first[i], "'") : "none";
      if (here == there) continue;
      Fail(absl::StrCat("parameter ", i,
                        " of those without a gradient is not the same on all "
                        "ranks: rank 0 has ",
                        there, ", rank ", communicator_.rank(), " has ", here));
    }
  }

  // The lines of rank 0's text.
  std::vector<std::string> FromRankZero(std::string text) {
    Communicator& ranks = communicator_.host();
    auto size = static_cast<int64_t>(text.size());
    Check(ranks.Broadcast(&size, 1, DType::kInt64, /*root=*/0)->Wait());
    text.resize(static_cast<size_t>(size));
    Check(ranks.Broadcast(text.data(), text.size(), DType::kUint8, /*root=*/0)->Wait());
    return absl::StrSplit(text, '\n', absl::SkipEmpty());
  }

  void CheckStays(const char* kind, const NamedTensor& named) const {
    if (named.tensor.data_ptr() == named.data) return;
    Throw(absl::StrCat(kind, " '", named.name,
                       "' has moved since the module was wrapped, as by to(): the library would "
                       "read its old memory; wrap the module again"));
  }

  // Otherwise the ranks' values would drift apart without an error.
  static void CheckStaysFrozen(const NamedTensor& named) {
    if (!named.tensor.requires_grad()) return;
    Throw(absl::StrCat("parameter '", named.name,
                       "' requires a gradient now and did not when the module was wrapped, so it "
                       "would not be averaged: wrap the module again"));
  }

  void OnGradient(Parameter& parameter) {
    try {
      const at::NoGradGuard no_grad;
      const int task = ::torch::autograd::get_current_graph_task_id();
      if (pass_.expired()) {
        BeginPass();
        task_ = task;
      }
      CheckGradient(parameter);
      if (task != task_) {
        Throw(absl::StrCat("parameter '", parameter.named.name,
                           "' got a gradient in a backward pass inside another, of which the "
                           "gradients are not complete: end one before the next begins"));
      }
      if (is_synced()) {
        Adopt(parameter);
        parameter.has_come = true;
      }
      Check(ddp_->GradientReady(parameter.id, StreamOfPass()));
    } catch (const c10::Error& error) {
      Fail(error.what_without_backtrace());
    }
  }

  bool is_synced() const { return !library_no_sync_.has_value(); }

  void BeginPass() {
    auto pass = std::make_shared<Pass>(this);
    pass_ = pass;
    stream_.reset();
    ::torch::autograd::Engine::get_default_engine().queue_callback([pass = std::move(pass)] {
      if (Gradients* owner = std::exchange(pass->owner, nullptr)) owner->EndPass();
    });
    if (!is_synced()) return;
    for (Parameter& parameter : parameters_) {
      // In a static graph, parameters without a gradient are reduced before the end.
      parameter.is_filled_in = finds_unused_ && !parameter.has_come;
      if (parameter.is_filled_in) FillIn(parameter);
      parameter.has_come = false;
    }
  }

  void EndPass() {
    const at::NoGradGuard no_grad;
    pass_.reset();
    const bool has_unused = finds_unused_ && is_synced();
    for (Parameter& parameter : parameters_) {
      if (has_unused && !parameter.has_come && !parameter.is_filled_in) FillIn(parameter);
    }
    if (has_unused) StreamOfPass();  // comes after these, too
    if (absl::Status status = ddp_->Finish(CurrentStream()); !status.ok()) {
      Fail(std::string(status.message()));
    }
    for (Parameter& parameter : parameters_) {
      if (has_unused && !parameter.has_come && ddp_->WasUsed(parameter.id)) {
        parameter.named.tensor.mutable_grad() = parameter.gradient;
      }
    }
  }

  // The other ranks wait for its gradients.
  void Abandon() {
    if (!is_synced()) return;
    FailQuietly("the backward pass was left by an exception before its gradients were reduced");
  }

  // Autograd adds to the gradient in place, or makes a new one, as after zero_grad().
  void Adopt(Parameter& parameter) {
    FillIn(parameter);
    parameter.named.tensor.mutable_grad() = parameter.gradient;
  }

  void FillIn(Parameter& parameter) {
    const at::Tensor& gradient = parameter.named.tensor.grad();
    if (gradient.is_same(parameter.gradient)) return;
    gradient.defined() ? parameter.gradient.copy_(gradient) : parameter.gradient.zero_();
  }

  static void CheckGradient(const Parameter& parameter) {
    const at::Tensor& gradient = parameter.named.tensor.grad();
    if (!gradient.defined()) return;
    if (gradient.layout() != at::kStrided) {
      Throw(
          absl::StrCat("parameter '", parameter.named.name, "' got a gradient that is not dense (",
                       c10::str(gradient.layout()),
                       "), and only dense ones are reduced: make the layer without sparse(true)"));
    }
    if (gradient.requires_grad()) {
      Throw(absl::StrCat("parameter '", parameter.named.name,
                         "' got a gradient that requires one itself: call backward() without "
                         "create_graph"));
    }
  }

  // One stream represents all of a pass. If gradients come on several, it waits for the others.
  Stream StreamOfPass() {
    if (device_.is_cpu()) return nullptr;
    const at::Stream stream = StreamOfThread();
    if (!stream_.has_value()) stream_ = stream;
    if (stream != *stream_) {
      c10::Event computed(device_.type());
      computed.record(stream);
      computed.block(*stream_);
    }
    return stream_->native_handle();
  }

  [[noreturn]] void Fail(const std::string& why) {
    FailQuietly(why);
    Throw(why);
  }

  // The group ends with the first reason.
  void FailQuietly(const std::string& why) {
    if (!error_.empty()) return;
    error_ = why;
    communicator_.Abort(why);
  }

  // A gradient that the program keeps must outlive the library's memory.
  void LeaveToProgram(at::Tensor& gradient) {
    if (gradient.use_count() == 1 && gradient.storage().use_count() == 1) return;
    // In a pass that failed, the library's thread may still use the memory.
    const at::NoGradGuard no_grad;
    const at::Tensor copy = error_.empty() ? gradient.clone() : at::zeros_like(gradient);
    gradient.storage().set_data_ptr_noswap(copy.storage().set_data_ptr(at::DataPtr()));
  }

  Communicator& communicator_;
  const at::Device device_;
  const bool finds_unused_;
  std::optional<ddp::DistributedDataParallel> ddp_;  // empty until the module is known to be right
  std::deque<Parameter> parameters_;                 // by id; hooks refer to them
  std::vector<NamedTensor> buffers_, frozen_;
  int no_sync_depth_ = 0;
  // For the passes that the last forward() with gradients has begun.
  std::optional<ddp::DistributedDataParallel::NoSyncGuard> library_no_sync_;
  std::string error_;  // final

  // The present pass.
  std::weak_ptr<Pass> pass_;
  int task_ = -1;                     // autograd's number of the pass
  std::optional<at::Stream> stream_;  // CUDA
};

}  // namespace ddp::torch::internal

#endif  // DDPRUN_WORKER_RUNTIME_DDP_TORCH_GRADIENTS_H_
