#include "rendezvous/server/local_session.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/agent_record.h"

namespace ddprun::rendezvous {
namespace {

// Shared by the client, whose destructor silences it, and the driver, which may still hold it then.
class LocalSession final : public Session {
 public:
  LocalSession(std::shared_ptr<Inbox> inbox, Policy policy, RendezvousClient::EventHandler handler)
      : inbox_(std::move(inbox)), handler_(std::move(handler)), record_(std::move(policy)) {}

  // Returns false when the coordinator takes no session any more.
  bool Attach(std::shared_ptr<Session> self) {
    const std::optional<SessionId> id = inbox_->Open(std::move(self));
    if (id) id_ = *id;
    return id.has_value();
  }

  void Send(TimePoint, const Stamp& current, const Action& action) override {
    const std::lock_guard lock(mutex_);
    if (is_silent_) return;
    std::optional<RendezvousEvent> event = record_.Hear(current.instance, action);
    // Under the lock, so that no event comes after Silence: the handler only posts.
    if (event) handler_(*std::move(event));
  }

  void Processed(const Stamp&, const Event&) override {
    {
      const std::lock_guard lock(mutex_);
      ++processed_;
    }
    changed_.notify_all();
  }

  void Close() override {
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
    }
    changed_.notify_all();
  }

  std::optional<Event> Tick(TimePoint) override {
    const std::lock_guard lock(mutex_);
    Stamp stamp = record_.stamp();
    stamp.session = id_;
    return HeartbeatReceived{stamp};
  }

  // Changes the record and hands on what is to be said.
  template <typename Change>
  void Say(Change change) {
    const std::lock_guard lock(mutex_);
    if (is_silent_) return;
    change(record_);
    while (std::optional<Event> event = record_.NextToSay(SteadyNow())) {
      SetSession(*event, id_);
      ++posted_;
      inbox_->Post(*std::move(event));
    }
  }

  void Flush(Duration timeout) {
    const auto deadline = ToSteady(SteadyNow() + timeout);
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [this] { return is_closed_ || processed_ >= posted_; });
  }

  // From its return on the handler is not called.
  void Silence() {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(is_silent_, true)) return;
    }
    inbox_->Post(SessionBroken{id_});
  }

 private:
  const std::shared_ptr<Inbox> inbox_;
  const RendezvousClient::EventHandler handler_;
  SessionId id_;  // set before anything else is called

  std::mutex mutex_;
  std::condition_variable changed_;
  AgentRecord record_;
  uint64_t posted_ = 0;
  uint64_t processed_ = 0;
  bool is_closed_ = false;
  bool is_silent_ = false;
};

class LocalClient final : public RendezvousClient {
 public:
  LocalClient(std::shared_ptr<Inbox> inbox, Policy policy, EventHandler handler)
      : session_(std::make_shared<LocalSession>(std::move(inbox), std::move(policy), handler)) {
    if (session_->Attach(session_)) return;
    handler(RendezvousFailed{"the coordinator of this process has stopped"});
  }
  ~LocalClient() override { session_->Silence(); }

  void Join(const NodeInfo& node) override {
    session_->Say([&](AgentRecord& record) { record.Join(node); });
  }
  void ReportFailed(Round round, const FailureReport& report, TimePoint at) override {
    session_->Say([&](AgentRecord& record) { record.ReportFailed(round, report, at); });
  }
  void ReportFirstSuccess(Round round, int rank, TimePoint at) override {
    session_->Say([&](AgentRecord& record) { record.ReportFirstSuccess(round, rank, at); });
  }
  void ReportSucceeded(Round round) override {
    session_->Say([&](AgentRecord& record) { record.ReportSucceeded(round); });
  }
  void Leave(const std::string& reason) override {
    session_->Say([&](AgentRecord& record) { record.Leave(reason); });
  }
  void AckVerdict() override {
    session_->Say([](AgentRecord& record) { record.AckVerdict(); });
  }
  void FlushAndStop(Duration timeout) override {
    session_->Flush(timeout);
    session_->Silence();
  }

 private:
  const std::shared_ptr<LocalSession> session_;
};

}  // namespace

std::unique_ptr<RendezvousClient> AttachLocalSession(std::shared_ptr<Inbox> inbox, Policy policy,
                                                     RendezvousClient::EventHandler handler) {
  return std::make_unique<LocalClient>(std::move(inbox), std::move(policy), std::move(handler));
}

}  // namespace ddprun::rendezvous
