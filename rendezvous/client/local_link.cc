// The link of an agent that lives in the coordinator's own process: no bytes, no socket.
#include <optional>
#include <utility>

#include "rendezvous/client/link.h"

namespace ddprun::rendezvous {
namespace {

// Both ends at once: the agent's link, and its session for the coordinator.
class LocalLink final : public Link, public Session {
 public:
  LocalLink(std::shared_ptr<Inbox> inbox, Listener listener)
      : inbox_(std::move(inbox)), listener_(std::move(listener)) {}

  void Open(std::shared_ptr<Session> self) {
    const std::optional<SessionId> id = inbox_->Open(std::move(self));
    if (!id) return Close();
    id_ = *id;
  }

  void Say(const SayEvent& what) override {
    Event event = what.event;
    SetSession(event, id_);
    inbox_->Post(std::move(event));
  }
  void HearNext() override {}
  // What was said is Said, and so applied.
  void HalfClose() override { listener_(LinkEnded{}); }
  void Abandon() { inbox_->Post(SessionBroken{id_}); }

  // From the coordinator's thread.
  void Send(TimePoint, const Stamp& current, const Action& action) override {
    listener_(Heard{current.instance, action});
  }
  void Processed(const Stamp&, const Event&) override { listener_(Said{}); }
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
  return OwnedLink(link.get(), [link](Link*) { link->Abandon(); });
}

}  // namespace ddprun::rendezvous
