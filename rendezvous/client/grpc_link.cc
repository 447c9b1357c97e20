// The link of an agent whose coordinator is reached over the network: one Attach call.
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/link.h"
#include "rendezvous/net/channel.h"
#include "rendezvous/wire/checked_fields.h"
#include "rendezvous/wire/convert.h"

namespace ddprun::rendezvous {
namespace {

std::atomic<int> live_streams{0};

ContactEvent ToContactEvent(const v1::CoordinatorMessage& message) {
  // An unknown kind is a newer coordinator's, and shows as well that it lives.
  if (message.kind_case() == v1::CoordinatorMessage::KIND_NOT_SET) return BeatAnswered{};
  if (message.has_heartbeat_reply()) return BeatAnswered{message.heartbeat_reply().sequence()};
  absl::StatusOr<Action> action = FromProto(message, SteadyNow());
  if (action.ok()) return Heard{InstanceOf(message), *std::move(action)};
  return LinkEnded{true, absl::StrCat("sent a malformed message: ", action.status().message())};
}

LinkEnded ToLinkEnded(const grpc::Status& status) {
  const std::string text = CleanText(status.error_message());
  switch (status.error_code()) {
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::UNIMPLEMENTED:
      return {true, absl::StrCat("does not understand this node: ", text)};
    default:
      return {false, text.empty() ? "the stream ended" : text};
  }
}

// Lives until gRPC says OnDone (through `self_`) and until its link is gone. A hold keeps OnDone
// away while the owner may still start operations; it is given back when reading has ended.
class Reactor final : public grpc::ClientBidiReactor<v1::AgentMessage, v1::CoordinatorMessage> {
 public:
  Reactor(const SocketAddress& address, Link::Listener listener)
      : stub_(v1::Rendezvous::NewStub(MakeChannel(address))), listener_(std::move(listener)) {
    ++live_streams;
  }
  ~Reactor() override { --live_streams; }

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
      // Nobody reads on for a link that is gone, so nothing else would give the hold back.
      if (!ok || is_abandoned_) return ReleaseHold();
      is_unread_ = true;
    }
    Tell(ToContactEvent(incoming_));
  }

  void OnWriteDone(bool ok) override {
    if (ok) Tell(Said{});  // a failed write also ends the reading, and so the call
  }

  void OnDone(const grpc::Status& status) override {
    Tell(ToLinkEnded(status));
    const std::shared_ptr<Reactor> self = std::move(self_);
  }

  void Write(v1::AgentMessage message) {
    const std::lock_guard lock(mutex_);
    if (!is_held_) return;
    outgoing_ = std::move(message);
    const Duration sent = SteadyNow().time_since_epoch();
    outgoing_.set_sent_ns(static_cast<uint64_t>(sent.count()));
    StartWrite(&outgoing_);
  }

  void HalfClose() {
    const std::lock_guard lock(mutex_);
    if (is_held_) StartWritesDone();
  }

  void ReadNext() {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_unread_, false)) StartRead(&incoming_);
  }

  // The owner goes: whatever comes is read by nobody.
  void Abandon() {
    {
      const std::lock_guard lock(listener_mutex_);
      listener_ = nullptr;
    }
    context_.TryCancel();
    const std::lock_guard lock(mutex_);
    is_abandoned_ = true;
    // A message that nobody took holds up the read that would see the end.
    if (std::exchange(is_unread_, false)) ReleaseHold();
  }

  void Tell(ContactEvent event) {
    const std::lock_guard lock(listener_mutex_);
    if (listener_) listener_(std::move(event));
  }

 private:
  // REQUIRES: mutex_ is held.
  void ReleaseHold() {
    if (std::exchange(is_held_, false)) RemoveHold();
  }

  const std::unique_ptr<v1::Rendezvous::Stub> stub_;
  grpc::ClientContext context_;
  std::shared_ptr<Reactor> self_;
  v1::CoordinatorMessage incoming_;  // of gRPC unless is_unread_
  v1::AgentMessage outgoing_;        // of gRPC until OnWriteDone

  std::mutex mutex_;
  bool is_held_ = true;
  bool is_unread_ = false;
  bool is_abandoned_ = false;

  std::mutex listener_mutex_;  // apart: the owner's lock may be taken within the listener
  Link::Listener listener_;
};

class GrpcLink final : public Link {
 public:
  explicit GrpcLink(std::shared_ptr<Reactor> reactor) : reactor_(std::move(reactor)) {}
  ~GrpcLink() override { reactor_->Abandon(); }

  void Say(const SayEvent& what) override {
    absl::StatusOr<v1::AgentMessage> message = ToProto(what.event, what.round_trip);
    if (!message.ok()) {
      return reactor_->Tell(LinkEnded{
          true, absl::StrCat("cannot be told of this node: ", message.status().message())});
    }
    if (message->has_heartbeat()) message->mutable_heartbeat()->set_sequence(what.sequence);
    reactor_->Write(*std::move(message));
  }
  void HearNext() override { reactor_->ReadNext(); }
  void Close() override { reactor_->HalfClose(); }

 private:
  const std::shared_ptr<Reactor> reactor_;
};

}  // namespace

std::unique_ptr<Link> OpenGrpcLink(const SocketAddress& address, Link::Listener listener) {
  PrepareGrpc();
  auto reactor = std::make_shared<Reactor>(address, std::move(listener));
  reactor->Begin(reactor);
  return std::make_unique<GrpcLink>(std::move(reactor));
}

int CountGrpcLinksForTest() { return live_streams; }

}  // namespace ddprun::rendezvous
