#include "rendezvous/server/look_stream.h"

#include <utility>
#include <variant>

#include "rendezvous/wire/convert.h"

namespace ddprun::rendezvous {

LookStream::LookStream(std::shared_ptr<Inbox> inbox, uint64_t question_id, std::atomic<int>& calls,
                       std::shared_ptr<AnswerBudget> budget, grpc::CallbackServerContext* context)
    : inbox_(std::move(inbox)),
      question_id_(question_id),
      calls_(calls),
      budget_(std::move(budget)),
      context_(context) {}

void LookStream::Begin(std::shared_ptr<LookStream> self) {
  self_ = self;
  // Who does not read keeps nobody else from asking.
  limit_timer_.Set(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(kLimitMs, GPR_TIMESPAN)),
      [weak = std::weak_ptr(self)](bool is_due) {
        const std::shared_ptr<LookStream> stream = weak.lock();
        if (is_due && stream != nullptr) stream->OnLimit();
      });
  const bool is_welcome = ++calls_ <= kMaxCalls;
  const std::optional<SessionId> id = is_welcome ? inbox_->Open(std::move(self)) : std::nullopt;
  if (!id) {
    const std::lock_guard lock(mutex_);
    return FinishLater(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many ask"));
  }
  id_ = *id;
  inbox_->Post(id_, QuestionAsked{{}, {.id = question_id_, .to = {}, .body = kPublicQuestion}});
}

void LookStream::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  is_writing_ = false;
  outgoing_.pop_front();
  if (!ok) return FinishLater(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the stream broke"));
  Pump();
}

void LookStream::OnLimit() {
  const std::lock_guard lock(mutex_);
  if (context_ != nullptr) context_->TryCancel();
}

void LookStream::OnCancel() {
  const std::lock_guard lock(mutex_);
  FinishLater(grpc::Status(grpc::StatusCode::CANCELLED, "the stream was cancelled"));
}

void LookStream::OnDone() {
  --calls_;
  // Behind all reactions, which gRPC orders where the thread sanitizer does not see it: the
  // driver's thread may be the last that lets go.
  {
    const std::lock_guard lock(mutex_);
    context_ = nullptr;
  }
  inbox_->Post(id_, SessionBroken{.session = {}, .is_by_peer = true});
  const std::shared_ptr<LookStream> self = std::move(self_);
}

void LookStream::Send(TimePoint now, const Stamp&, const Action& action) {
  const auto* given = std::get_if<GiveAnswers>(&action);
  if (given == nullptr) return;
  v1::Answers message;
  AnswersToProto(*given, now, message);
  const std::lock_guard lock(mutex_);
  if (finish_) return;
  AnswerCharge charge(budget_, this, message);
  outgoing_.emplace_back(std::move(message), std::move(charge));
  if (given->is_last) finish_ = grpc::Status::OK;
  Pump();
}

void LookStream::Close() {
  const std::lock_guard lock(mutex_);
  FinishLater(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the coordinator has stopped"));
}

void LookStream::FinishLater(const grpc::Status& status) {
  if (!finish_) finish_ = status;
  if (!is_writing_) outgoing_.clear();
  Pump();
}

void LookStream::Pump() {
  if (is_writing_ || is_finished_) return;
  if (!outgoing_.empty()) {
    is_writing_ = true;
    StartWrite(&outgoing_.front().first);
  } else if (finish_) {
    is_finished_ = true;
    Finish(*finish_);
  }
}

}  // namespace ddprun::rendezvous
