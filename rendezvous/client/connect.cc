#include "rendezvous/client/connect.h"

#include <cstdint>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/link.h"
#include "rendezvous/client/look.h"
#include "rendezvous/client/mailbox.h"
#include "rendezvous/net/interrupt.h"
#include "rendezvous/server/coordinator.h"

namespace ddprun::rendezvous {
namespace {

// How long the destructor waits for an errand that does not end: a resolver, a file system.
constexpr Duration kErrandPatience = std::chrono::seconds(2);

// The agent's functions for a coordinator here, until the agent goes: one that starts or stops late
// finds nothing to call.
struct Callbacks {
  std::mutex mutex;
  RendezvousOptions options;

  template <typename Function, typename... Args>
  void Call(Function RendezvousOptions::*function, Args&&... args) {
    const std::lock_guard lock(mutex);
    if (options.*function) (options.*function)(std::forward<Args>(args)...);
  }
};

// The driver of a ContactCore. One thread steps it and carries out what it asks for; errands that
// may block are for a helper, which is left behind when it does not come back.
class Client final : public RendezvousClient {
 public:
  Client(RendezvousOptions options, EventHandler handler)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        core_(options_, HostName(), std::random_device{}(), SteadyNow()) {
    callbacks_->options = options_;
    if (!stop_->is_open()) {
      handler_(RendezvousFailed{
          "make an eventfd for the rendezvous: no file descriptor is left; raise the limit on open "
          "files (ulimit -n)",
          /*is_local=*/true});
      return;
    }
    const bool has_errands = !is_standalone() || !options_.local_addr.empty();
    if (has_errands) {
      helper_ = StartQuietThread([errands = errands_] {
        while (errands->RunUntil(std::nullopt)) {
        }
      });
    }
    if (!has_errands || helper_.joinable()) thread_ = StartQuietThread([this] { Run(); });
    if (thread_.joinable()) return;
    handler_(RendezvousFailed{absl::StrCat("start a thread for the rendezvous: ", kNoThreadText),
                              /*is_local=*/true});
  }

  ~Client() override {
    inbox_->Post([this] {
      is_silent_ = true;
      Feed(EndCommand{});
      link_.reset();
    });
    inbox_->Close();
    if (thread_.joinable()) thread_.join();
    stop_->Set();
    errands_->Close();
    if (helper_.joinable() && errands_->WaitDone(kErrandPatience)) {
      helper_.join();
    } else if (helper_.joinable()) {
      helper_.detach();
    }
    const std::lock_guard lock(callbacks_->mutex);
    callbacks_->options = {};
  }

  void Join(const NodeInfo& node) override { Post(JoinCommand{node}); }
  void ReportFailed(Round round, const FailureReport& report, TimePoint at) override {
    Post(FailureCommand{round, report, at});
  }
  void ReportFirstSuccess(Round round, int rank, TimePoint at) override {
    Post(FirstSuccessCommand{round, rank, at});
  }
  void ReportSucceeded(Round round) override { Post(SuccessCommand{round}); }
  void Leave(const std::string& reason) override { Post(LeaveCommand{reason}); }
  void AckVerdict() override { Post(AckCommand{}); }
  void EndContact(Duration timeout) override {
    if (thread_.joinable()) return Post(EndCommand{timeout});
    handler_(ContactEnded{});
  }

 private:
  bool is_standalone() const { return options_.mode == ContactOptions::Mode::kStandalone; }

  void Post(ContactEvent event) {
    inbox_->Post([this, event = std::move(event)] { Feed(event); });
  }

  void Run() {
    Feed(TimePassed{});
    while (inbox_->RunUntil(core_.NextDeadline())) {
      const std::optional<TimePoint> deadline = core_.NextDeadline();
      if (deadline && *deadline <= SteadyNow()) Feed(TimePassed{});
    }
  }

  void Feed(const ContactEvent& event) {
    for (const ContactAction& action : core_.Step(SteadyNow(), event)) {
      std::visit([this](const auto& a) { Do(a); }, action);
    }
  }

  // Runs `errand` on the helper, and `then` with what it found here.
  template <typename Errand, typename Then>
  void Send(Errand errand, Then then) {
    errands_->Post([inbox = inbox_, errand = std::move(errand), then = std::move(then)] {
      // Shared, so that it is copyable; a coordinator that nobody takes ends with it.
      auto found = std::make_shared<decltype(errand())>(errand());
      inbox->Post([then, found = std::move(found)] { then(*found); });
    });
  }

  void Do(const CheckLocalName&) {
    Send(
        [name = options_.local_addr, resolve = options_.resolver] { return LookUp(name, resolve); },
        [this](const Looked& seen) { Feed(seen); });
  }

  void Do(const LookAtEndpoint& action) {
    Send([host = options_.endpoint_host, port = options_.endpoint_port,
          run_id = options_.policy.run_id, is_port_here = action.is_port_here,
          resolve = options_.resolver,
          stop = stop_] { return LookAt(host, port, run_id, is_port_here, resolve, *stop); },
         [this](const LookResult& result) {
           address_ = result.address;
           Feed(result.seen);
         });
  }

  void Do(const HostHere&) {
    using Started = absl::StatusOr<std::unique_ptr<Coordinator>>;
    const auto take = [this](Started& started) { Take(started); };
    if (is_standalone()) {  // no file, no port: nothing that blocks
      auto started = std::make_shared<Started>(Coordinator::Start(CoordinatorOptions()));
      return inbox_->Post([take, started] { take(*started); });
    }
    const auto options = std::make_shared<Coordinator::Options>(CoordinatorOptions());
    Send([options] { return Coordinator::Start(std::move(*options)); }, take);
  }

  Coordinator::Options CoordinatorOptions() {
    Coordinator::Options start;
    start.policy = options_.policy;
    start.run_dir = options_.run_dir;
    if (!is_standalone()) start.listen = {.host = "", .port = options_.endpoint_port};
    const std::shared_ptr<Callbacks> calls = callbacks_;
    if (options_.on_store_connection) {
      start.on_store_connection = [calls](UniqueFd fd) {
        calls->Call(&RendezvousOptions::on_store_connection, std::move(fd));
      };
    }
    if (options_.log_step) {
      start.log_step = [calls](const std::string& line) {
        calls->Call(&RendezvousOptions::log_step, line);
      };
    }
    start.on_no_descriptor = [calls] { calls->Call(&RendezvousOptions::on_no_descriptor); };
    start.on_finished = [this, inbox = inbox_] { inbox->Post([this] { Feed(HostFinished{}); }); };
    return start;
  }

  void Take(absl::StatusOr<std::unique_ptr<Coordinator>>& started) {
    if (started.ok()) {
      hosted_ = *std::move(started);
      return Feed(Hosted{});
    }
    if (absl::IsAlreadyExists(started.status())) return Feed(Hosted{Hosted::Outcome::kPortTaken});
    Feed(Hosted{Hosted::Outcome::kFailed, std::string(started.status().message()),
                absl::IsResourceExhausted(started.status())});
  }

  void Do(const StopHosting&) {
    const std::shared_ptr<Coordinator> coordinator = std::move(hosted_);
    if (coordinator == nullptr) return Post(HostStopped{});
    if (is_standalone()) {
      coordinator->Stop();
      return Post(HostStopped{});
    }
    Send(
        [coordinator] {
          coordinator->Stop();
          return HostStopped{};
        },
        [this](HostStopped stopped) { Feed(stopped); });
  }

  void Do(const OpenLink& action) {
    auto listener = [this, inbox = inbox_, number = ++links_](const ContactEvent& event) {
      inbox->Post([this, number, event] { Hear(number, event); });
    };
    link_ = action.is_local ? OpenLocalLink(hosted_->inbox(), std::move(listener))
                            : OpenGrpcLink(address_, std::move(listener));
  }

  void Hear(uint64_t number, const ContactEvent& event) {
    if (link_ == nullptr || number != links_) return;  // of a link that is gone
    if (std::holds_alternative<LinkEnded>(event)) link_.reset();
    Feed(event);
    const bool is_read =
        std::holds_alternative<Heard>(event) || std::holds_alternative<BeatAnswered>(event);
    if (is_read && link_ != nullptr && number == links_) link_->HearNext();
  }

  void Do(const SayEvent& action) {
    if (link_ != nullptr) link_->Say(action);
  }

  void Do(const CloseLink& action) {
    if (!action.is_polite) return link_.reset();
    if (link_ != nullptr) link_->Close();
  }

  void Do(const Emit& action) {
    if (!is_silent_) handler_(action.event);
  }

  const RendezvousOptions options_;
  const EventHandler handler_;
  // Shared with whoever may post late: links, errands, a coordinator that stops.
  const std::shared_ptr<Mailbox> inbox_ = std::make_shared<Mailbox>();
  // Shared with the helper, and so is what its errands use.
  const std::shared_ptr<Mailbox> errands_ = std::make_shared<Mailbox>();
  const std::shared_ptr<Interrupt> stop_ = std::make_shared<Interrupt>();
  const std::shared_ptr<Callbacks> callbacks_ = std::make_shared<Callbacks>();

  // The thread's own.
  ContactCore core_;
  SocketAddress address_;  // where the last look found somebody
  std::unique_ptr<Coordinator> hosted_;
  uint64_t links_ = 0;  // opened so far: the number of the last one
  std::unique_ptr<Link> link_;
  bool is_silent_ = false;

  std::thread helper_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<RendezvousClient> ConnectRendezvous(RendezvousOptions options,
                                                    RendezvousClient::EventHandler handler) {
  return std::make_unique<Client>(std::move(options), std::move(handler));
}

}  // namespace ddprun::rendezvous
