#include "rendezvous/client/link.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/tunnel_channel.h"
#include "rendezvous/net/channel.h"
#include "rendezvous/wire/checked_fields.h"
#include "rendezvous/wire/convert.h"

namespace ddprun::rendezvous {
namespace {

std::atomic<int> live_streams{0};

ContactEvent ToContactEvent(const v1::CoordinatorMessage& message, TimePoint now) {
  // An unknown kind is a newer coordinator's, and shows as well that it lives.
  if (message.kind_case() == v1::CoordinatorMessage::KIND_NOT_SET) return BeatAnswered{};
  if (message.has_heartbeat_reply()) {
    const v1::HeartbeatReply& reply = message.heartbeat_reply();
    return BeatAnswered{reply.sequence(), std::chrono::milliseconds(reply.interval_ms())};
  }
  absl::StatusOr<Action> action = FromProto(message, now);
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
      // gRPC's word for a peer whose system may live and which itself says nothing.
      if (text == "keepalive watchdog timeout") return {false, "it does not answer"};
      return {false, text.empty() ? "the stream ended" : text};
  }
}

// The link to a coordinator over the network: one Attach call.
// Lives until gRPC says OnDone (through `self_`) and until its owner lets go. A hold keeps OnDone
// away while the owner may still start operations; it is given back when reading has ended.
class GrpcLink final : public Link,
                       public grpc::ClientBidiReactor<v1::AgentMessage, v1::CoordinatorMessage> {
 public:
  GrpcLink(const std::shared_ptr<grpc::Channel>& channel, Listener listener, const Clock& clock)
      : stub_(v1::Rendezvous::NewStub(channel)), listener_(std::move(listener)), clock_(clock) {
    ++live_streams;
  }
  ~GrpcLink() override { --live_streams; }

  void Begin(std::shared_ptr<GrpcLink> self) {
    const std::lock_guard lock(mutex_);
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
    Tell(ToContactEvent(incoming_, clock_.Now()));
  }

  void OnWriteDone(bool ok) override {
    if (ok) Tell(Said{});  // a failed write also ends the reading, and so the call
  }

  void OnDone(const grpc::Status& status) override {
    Tell(ToLinkEnded(status));
    const std::shared_ptr<GrpcLink> self = std::move(self_);
  }

  // From the owner's thread.
  void Say(const SayEvent& what) override {
    absl::StatusOr<v1::AgentMessage> message = ToProto(what.event, what.round_trip);
    if (!message.ok()) {
      return Tell(LinkEnded{
          true, absl::StrCat("cannot be told of this node: ", message.status().message())});
    }
    if (message->has_heartbeat()) message->mutable_heartbeat()->set_sequence(what.sequence);
    Write(*std::move(message));
  }

  void HalfClose() override {
    const std::lock_guard lock(mutex_);
    if (is_held_) StartWritesDone();
  }

  void HearNext() override {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_unread_, false)) StartRead(&incoming_);
  }

  // The owner goes: whatever comes is read by nobody.
  void Abandon() {
    context_.TryCancel();
    const std::lock_guard lock(mutex_);
    is_abandoned_ = true;
    // A message that nobody took holds up the read that would see the end.
    if (std::exchange(is_unread_, false)) ReleaseHold();
  }

 private:
  // Under the lock, which orders the owner's making of the listener before gRPC's threads where the
  // thread sanitizer sees it.
  void Tell(ContactEvent event) {
    const std::lock_guard lock(mutex_);
    listener_(std::move(event));
  }

  void Write(v1::AgentMessage message) {
    const std::lock_guard lock(mutex_);
    if (!is_held_) return;
    outgoing_ = std::move(message);
    const Duration sent = SteadyNow().time_since_epoch();
    outgoing_.set_sent_ns(static_cast<uint64_t>(sent.count()));
    StartWrite(&outgoing_);
  }

  // REQUIRES: mutex_ is held.
  void ReleaseHold() {
    if (std::exchange(is_held_, false)) RemoveHold();
  }

  const std::unique_ptr<v1::Rendezvous::Stub> stub_;
  const Listener listener_;
  const Clock& clock_;
  grpc::ClientContext context_;
  std::shared_ptr<GrpcLink> self_;
  v1::CoordinatorMessage incoming_;  // of gRPC unless is_unread_
  v1::AgentMessage outgoing_;        // of gRPC until OnWriteDone

  std::mutex mutex_;
  bool is_held_ = true;
  bool is_unread_ = false;
  bool is_abandoned_ = false;
};

// The link of an agent that lives in the coordinator's own process: no bytes, no socket. It is both
// ends at once: the agent's link, and its session for the coordinator.
class LocalLink final : public Link, public Session {
 public:
  LocalLink(std::shared_ptr<Inbox> inbox, Listener listener)
      : inbox_(std::move(inbox)), listener_(std::move(listener)) {}

  void Open(std::shared_ptr<Session> self) {
    const std::optional<SessionId> id = inbox_->Open(std::move(self));
    if (!id) return Close();
    id_ = *id;
  }

  void Say(const SayEvent& what) override { inbox_->Post(id_, what.event); }
  void HearNext() override {}
  // What was said is Said, and so applied.
  void HalfClose() override { listener_(LinkEnded{}); }
  void Abandon() { inbox_->Post(id_, SessionBroken{}); }

  // From the coordinator's thread.
  void Send(TimePoint, const Stamp& current, const Action& action) override {
    listener_(Heard{current.instance, action});
  }
  void Processed(const Stamp&, const Event&, Duration) override { listener_(Said{}); }
  void Close() override {
    listener_(LinkEnded{false, "the coordinator of this process has stopped"});
  }

 private:
  const std::shared_ptr<Inbox> inbox_;
  const Listener listener_;
  SessionId id_;  // the agent's
};

}  // namespace

OwnedLink OpenLocalLink(std::shared_ptr<Inbox> inbox, Link::Listener listener) {
  auto link = std::make_shared<LocalLink>(std::move(inbox), std::move(listener));
  link->Open(link);
  return OwnedLink(link.get(), [link](Link*) mutable { std::exchange(link, nullptr)->Abandon(); });
}

OwnedLink OpenGrpcLink(const SocketAddress& address, Tunnels* tunnels, Link::Listener listener,
                       const Clock& clock) {
  PrepareGrpc();
  auto link = std::make_shared<GrpcLink>(ChannelTo(address, tunnels), std::move(listener), clock);
  link->Begin(link);
  return OwnedLink(link.get(), [link](Link*) mutable { std::exchange(link, nullptr)->Abandon(); });
}

int CountGrpcLinksForTest() { return live_streams; }

}  // namespace ddprun::rendezvous
