#include "rendezvous/client/attach_call.h"

#include <mutex>
#include <utility>

#include "rendezvous/net/channel.h"

namespace ddprun::rendezvous {

// Lives until gRPC says OnDone (through `self_`) and until its AttachCall is gone. A hold keeps
// OnDone away while the owner may still start operations; it is given back when reading has ended.
class AttachCall::Reactor final
    : public grpc::ClientBidiReactor<v1::AgentMessage, v1::CoordinatorMessage> {
 public:
  Reactor(const SocketAddress& address, std::function<void()> on_change)
      : stub_(v1::Rendezvous::NewStub(MakeChannel(address))), on_change_(std::move(on_change)) {}

  void Begin(std::shared_ptr<Reactor> self) {
    self_ = std::move(self);
    stub_->async()->Attach(&context_, this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    {
      const std::lock_guard lock(mutex_);
      if (ok) {
        has_message_ = true;
      } else {
        ReleaseHold();
      }
    }
    Notify();
  }

  void OnWriteDone(bool) override {
    // A failed write also ends the reading, which is where the end is noticed.
    {
      const std::lock_guard lock(mutex_);
      is_writing_ = false;
    }
    Notify();
  }

  void OnDone(const grpc::Status& status) override {
    {
      const std::lock_guard lock(mutex_);
      end_ = status;
    }
    Notify();
    const std::shared_ptr<Reactor> self = std::move(self_);
  }

  void Write(v1::AgentMessage message) {
    const std::lock_guard lock(mutex_);
    if (!is_held_) return;
    outgoing_ = std::move(message);
    is_writing_ = true;
    StartWrite(&outgoing_);
  }

  void HalfClose() {
    const std::lock_guard lock(mutex_);
    if (!is_held_ || std::exchange(is_half_closed_, true)) return;
    StartWritesDone();
  }

  bool can_write() const {
    const std::lock_guard lock(mutex_);
    return !is_writing_ && !is_half_closed_;
  }

  std::optional<v1::CoordinatorMessage> TakeMessage() {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(has_message_, false)) return std::nullopt;
    v1::CoordinatorMessage message = std::move(incoming_);
    incoming_.Clear();
    StartRead(&incoming_);
    return message;
  }

  std::optional<grpc::Status> end() const {
    const std::lock_guard lock(mutex_);
    return end_;
  }

  // The owner goes: whatever comes is read by nobody.
  void Abandon() {
    {
      const std::lock_guard lock(notify_mutex_);
      on_change_ = nullptr;
    }
    context_.TryCancel();
    const std::lock_guard lock(mutex_);
    // A message that nobody took holds up the read that would see the end.
    if (std::exchange(has_message_, false)) ReleaseHold();
  }

 private:
  // REQUIRES: mutex_ is held.
  void ReleaseHold() {
    if (std::exchange(is_held_, false)) RemoveHold();
  }

  void Notify() {
    const std::lock_guard lock(notify_mutex_);
    if (on_change_) on_change_();
  }

  const std::unique_ptr<v1::Rendezvous::Stub> stub_;
  grpc::ClientContext context_;
  std::shared_ptr<Reactor> self_;
  v1::CoordinatorMessage incoming_;  // of gRPC unless has_message_
  v1::AgentMessage outgoing_;        // of gRPC while is_writing_

  mutable std::mutex mutex_;
  bool is_held_ = true;
  bool has_message_ = false;
  bool is_writing_ = false;
  bool is_half_closed_ = false;
  std::optional<grpc::Status> end_;

  std::mutex notify_mutex_;  // apart: the owner's lock may be taken within on_change_
  std::function<void()> on_change_;
};

AttachCall::AttachCall(std::shared_ptr<Reactor> reactor) : reactor_(std::move(reactor)) {}

std::unique_ptr<AttachCall> AttachCall::Start(const SocketAddress& address,
                                              std::function<void()> on_change) {
  auto reactor = std::make_shared<Reactor>(address, std::move(on_change));
  reactor->Begin(reactor);
  return std::unique_ptr<AttachCall>(new AttachCall(std::move(reactor)));
}

AttachCall::~AttachCall() { reactor_->Abandon(); }

void AttachCall::Write(v1::AgentMessage message) { reactor_->Write(std::move(message)); }
void AttachCall::HalfClose() { reactor_->HalfClose(); }
bool AttachCall::can_write() const { return reactor_->can_write(); }
std::optional<v1::CoordinatorMessage> AttachCall::TakeMessage() { return reactor_->TakeMessage(); }
std::optional<grpc::Status> AttachCall::end() const { return reactor_->end(); }

}  // namespace ddprun::rendezvous
