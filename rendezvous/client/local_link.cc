// The link of an agent that lives in the coordinator's own process: no bytes, no socket.
#include <mutex>
#include <optional>
#include <utility>

#include "rendezvous/client/link.h"

namespace ddprun::rendezvous {
namespace {

// Shared by the link, whose destructor silences it, and the coordinator, which may still hold it.
class LocalSession final : public Session {
 public:
  explicit LocalSession(Link::Listener listener) : listener_(std::move(listener)) {}

  // From the coordinator's thread.
  void Send(TimePoint, const Stamp& current, const Action& action) override {
    Tell(Heard{current.instance, action});
  }
  void Processed(const Stamp&, const Event&) override { Tell(Said{}); }
  void Close() override { Tell(LinkEnded{false, "the coordinator of this process has stopped"}); }

  void Tell(ContactEvent event) {
    const std::lock_guard lock(mutex_);
    if (listener_) listener_(std::move(event));
  }

  // From its return on the listener is not called.
  void Silence() {
    const std::lock_guard lock(mutex_);
    listener_ = nullptr;
  }

 private:
  std::mutex mutex_;
  Link::Listener listener_;
};

class LocalLink final : public Link {
 public:
  LocalLink(std::shared_ptr<Inbox> inbox, Listener listener)
      : inbox_(std::move(inbox)), session_(std::make_shared<LocalSession>(std::move(listener))) {
    const std::optional<SessionId> id = inbox_->Open(session_);
    if (id) {
      id_ = *id;
    } else {
      session_->Close();
    }
  }

  ~LocalLink() override {
    session_->Silence();
    inbox_->Post(SessionBroken{id_});
  }

  void Say(const SayEvent& what) override {
    Event event = what.event;
    SetSession(event, id_);
    inbox_->Post(std::move(event));
  }

  void HearNext() override {}

  // What was said is Said, and so applied.
  void Close() override { session_->Tell(LinkEnded{}); }

 private:
  const std::shared_ptr<Inbox> inbox_;
  const std::shared_ptr<LocalSession> session_;
  SessionId id_;
};

}  // namespace

std::unique_ptr<Link> OpenLocalLink(std::shared_ptr<Inbox> inbox, Link::Listener listener) {
  return std::make_unique<LocalLink>(std::move(inbox), std::move(listener));
}

}  // namespace ddprun::rendezvous
