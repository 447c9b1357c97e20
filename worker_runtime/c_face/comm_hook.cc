// Communication hooks of ddp/c.h.
#include "ddp/comm_hook.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "ddp/c.h"
#include "ddp/communicator.h"
#include "worker_runtime/c_face/answer.h"
#include "worker_runtime/c_face/convert.h"
#include "worker_runtime/c_face/model.h"

namespace ddp::internal {
namespace {

// An operation, and what the program does behind it.
class ContinuedWork final : public Work {
 public:
  ContinuedWork(std::unique_ptr<Work> work, ddp_continuation then, void* context)
      : work_(std::move(work)), then_(then), context_(context) {}

  absl::Status Wait() override { return Continued(work_->Wait(), nullptr); }
  absl::Status WaitOn(Stream stream) override { return Continued(work_->WaitOn(stream), stream); }
  // The rest is done by who waits.
  bool WaitFor(std::chrono::milliseconds patience) const override {
    return work_->WaitFor(patience);
  }
  bool IsDone() const override { return work_->IsDone(); }
  bool was_refused() const override { return work_->was_refused(); }
  std::string missing() const override { return work_->missing(); }
  Clock::time_point issued_at() const override { return work_->issued_at(); }
  Clock::time_point started_at() const override { return work_->started_at(); }
  Clock::time_point ended_at() const override { return work_->ended_at(); }

 private:
  absl::Status Continued(absl::Status status, Stream stream) {
    if (!status.ok()) return status;
    if (!result_.has_value()) {
      const auto call = [&](ddp_answer* answer) { return then_(context_, stream, answer); };
      result_ = Answered("what the program does behind an operation", call).status();
    }
    return *result_;
  }

  const std::unique_ptr<Work> work_;
  const ddp_continuation then_;
  void* const context_;
  std::optional<absl::Status> result_;  // of `then_`, once it was called
};

CommHook HookOf(ddp_comm_hook hook, void* context) {
  return [hook, context](const GradientBucket& bucket, Communicator& communicator) {
    const ddp_bucket shown = {.data = bucket.data,
                              .count = bucket.count,
                              .dtype = static_cast<ddp_dtype>(bucket.dtype),
                              .index = bucket.index,
                              .is_last = bucket.is_last ? 1 : 0,
                              .stream = bucket.stream};
    ddp_work* work = hook(context, &shown, reinterpret_cast<ddp_communicator*>(&communicator));
    return std::unique_ptr<Work>(reinterpret_cast<Work*>(work));
  };
}

}  // namespace
}  // namespace ddp::internal

ddp_code ddp_model_set_comm_hook(ddp_model* model, ddp_comm_hook hook, void* context) {
  return ddp::internal::Used(__func__, model, [&](ddp::DistributedDataParallel& ddp) {
    absl::Status status = ddp::internal::CheckPointers(
        "ddp_model_set_comm_hook", {{"hook", reinterpret_cast<const void*>(hook)}});
    return status.ok() ? ddp.RegisterCommHook(ddp::internal::HookOf(hook, context)) : status;
  });
}

ddp_work* ddp_work_then(ddp_work* work, ddp_continuation then, void* context) {
  std::unique_ptr<ddp::Work> owned(reinterpret_cast<ddp::Work*>(work));
  ddp_work* continued = nullptr;
  (void)ddp::internal::Guarded([&] {
    absl::Status status = ddp::internal::CheckPointers(
        "ddp_work_then", {{"work", work}, {"then", reinterpret_cast<const void*>(then)}});
    if (!status.ok()) return status;
    auto made = std::make_unique<ddp::internal::ContinuedWork>(std::move(owned), then, context);
    continued = reinterpret_cast<ddp_work*>(static_cast<ddp::Work*>(made.release()));
    return absl::OkStatus();
  });
  return continued;
}
