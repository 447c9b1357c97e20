// One Look call: a session that asks one question, and hears the answers.
#ifndef DDPRUN_RENDEZVOUS_SERVER_LOOK_STREAM_H_
#define DDPRUN_RENDEZVOUS_SERVER_LOOK_STREAM_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/server/answer_budget.h"
#include "rendezvous/server/session.h"

namespace ddprun::rendezvous {

// Lives until gRPC says OnDone, through `self_`, and until the driver forgets it. Ends by itself
// after kLimitMs, whoever reads or does not.
class LookStream final : public grpc::ServerWriteReactor<v1::Answers>, public Session {
 public:
  // More at a time are refused: whoever reaches the port may ask.
  static constexpr int kMaxCalls = 32;
  static constexpr int64_t kLimitMs = 15000;
  // What all of them may hold, and one of them beyond it. A node of two ranks answers with 5 to
  // 10 KB.
  static constexpr size_t kBudgetBytes = size_t{32} << 20;

  // `calls`: how many are under way, this one not among them yet.
  LookStream(std::shared_ptr<Inbox> inbox, uint64_t question_id, std::atomic<int>& calls,
             std::shared_ptr<AnswerBudget> budget, grpc::CallbackServerContext* context);
  void Begin(std::shared_ptr<LookStream> self);

  // From gRPC's threads.
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // From the driver's thread.
  void Send(TimePoint now, const Stamp& current, const Action& action) override;
  void Processed(const Stamp&, const Event&, Duration) override {}
  void Close() override;

 private:
  void OnLimit();
  // REQUIRES: the mutex is held, here and below.
  void FinishLater(const grpc::Status& status);
  void Pump();

  const std::shared_ptr<Inbox> inbox_;
  const uint64_t question_id_;
  std::atomic<int>& calls_;
  const std::shared_ptr<AnswerBudget> budget_;
  SessionId id_;
  std::shared_ptr<LookStream> self_;
  grpc::Alarm limit_timer_;

  std::mutex mutex_;
  grpc::CallbackServerContext* context_;  // null from OnDone on
  // The first is being written if is_writing_.
  std::deque<std::pair<v1::Answers, AnswerCharge>> outgoing_;
  bool is_writing_ = false;
  std::optional<grpc::Status> finish_;
  bool is_finished_ = false;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_LOOK_STREAM_H_
