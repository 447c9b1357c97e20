#include "rendezvous/client/connect.h"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/mailbox.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/client/elected.h"
#include "rendezvous/client/link.h"
#include "rendezvous/client/look.h"
#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/net/interrupt.h"
#include "rendezvous/net/own_addresses.h"
#include "rendezvous/server/coordinator.h"

namespace ddprun::rendezvous {
namespace {

// How long the destructor waits for an errand that does not end: a resolver, a file system.
constexpr Duration kErrandPatience = std::chrono::seconds(2);

// Between the agent's functions and a coordinator here, which may start or stop when the agent has
// gone.
struct Gate {
  std::mutex mutex;
  bool is_open = true;
};

template <typename... Args>
std::function<void(Args...)> Behind(const std::shared_ptr<Gate>& gate,
                                    std::function<void(Args...)> function) {
  if (!function) return nullptr;
  return [gate, function = std::move(function)](Args... args) {
    const std::lock_guard lock(gate->mutex);
    if (gate->is_open) function(std::forward<Args>(args)...);
  };
}

// Whether an errand may have to do with a name, a port or a file.
bool MayBlock(const RendezvousOptions& options) {
  return options.mode != ContactOptions::Mode::kStandalone || !options.local_addr.empty();
}

// The driver of a ContactCore. One thread steps it and carries out what it asks for; errands that
// may block are for a helper, which is left behind when it does not come back.
class Client final : public RendezvousClient {
 public:
  Client(RendezvousOptions options, EventHandler handler, const Clock& clock)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        clock_(clock),
        core_(options_, HostName(), std::random_device{}(), clock.Now()) {
    if (!stop_->is_open()) {
      handler_(RendezvousFailed{
          "make an eventfd for the rendezvous: no file descriptor is left; raise the limit on open "
          "files (ulimit -n)",
          RendezvousFailed::Kind::kLocal});
      return;
    }
    if (MayBlock(options_)) helper_.emplace(kErrandPatience, clock_);
    if (!helper_ || helper_->is_running()) thread_ = StartQuietThread([this] { Run(); });
    if (thread_.joinable()) return;
    handler_(RendezvousFailed{absl::StrCat("start a thread for the rendezvous: ", kNoThreadText),
                              RendezvousFailed::Kind::kLocal});
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
    if (etcd_ != nullptr) etcd_->Cancel();
    helper_.reset();
    const std::lock_guard lock(gate_->mutex);
    gate_->is_open = false;
  }

  void Join(const NodeInfo& node) override { Post(JoinCommand{node}); }
  void ReportFailed(Round round, const FailureReport& report, TimePoint at) override {
    Post(ReportCommand{round, WorkersFailed{.stamp = {}, .report = report}, at});
  }
  void ReportFirstSuccess(Round round, int rank, TimePoint at) override {
    Post(ReportCommand{round, FirstWorkerSucceeded{.stamp = {}, .rank = rank}, at});
  }
  void ReportSucceeded(Round round, StopRead stop_read) override {
    Post(ReportCommand{round, WorkersSucceeded{.stamp = {}, .stop_read = stop_read}});
  }
  void Leave(const std::string& reason, bool is_by_signal) override {
    Post(LeaveCommand{reason, is_by_signal});
  }
  void AckVerdict() override { Post(AckCommand{}); }
  void Ask(const Question& question) override { Post(AskCommand{question}); }
  void Answer(uint64_t id, const std::string& body) override { Post(AnswerCommand{id, body}); }
  void OrderStop(StopHow how, const std::string& reason) override {
    Post(StopCommand{how, reason});
  }
  void ReportHealth(const HealthReport& report) override { Post(HealthCommand{report}); }
  void ShowLife() override { Post(LifeCommand{}); }
  void EndContact(Duration timeout) override {
    if (thread_.joinable()) return Post(EndCommand{timeout});
    handler_(ContactEnded{});
  }

 private:
  void Post(ContactEvent event) {
    inbox_->Post([this, event = std::move(event)] { Feed(event); });
  }

  void Run() {
    Feed(TimePassed{});
    const auto deadline = [this] { return core_.NextDeadline().value_or(TimePoint::max()); };
    while (inbox_->RunFor(clock_.Left(deadline()))) {
      if (deadline() <= clock_.Now()) Feed(TimePassed{});
    }
  }

  void Feed(const ContactEvent& event) {
    for (const ContactAction& action : core_.Step(clock_.Now(), event)) {
      std::visit([this](const auto& a) { Do(a); }, action);
    }
  }

  // Runs `errand` on the helper, if there is one, and `then` with what it found here.
  template <typename Errand, typename Then>
  void Send(Errand errand, Then then) {
    auto run = [inbox = inbox_, errand = std::move(errand), then = std::move(then)] {
      // Shared, so that it is copyable; a coordinator that nobody takes ends with it.
      auto found = std::make_shared<decltype(errand())>(errand());
      inbox->Post([then, found = std::move(found)] { then(*found); });
    };
    if (helper_) return helper_->Post(std::move(run));
    run();
  }

  void Do(const CheckLocalName&) {
    Send([options = options_] { return LookUp(options.local_addr, options.resolver); },
         [this](const LookedUp& name) {
           given_ = name.addresses;
           Feed(name.seen);
         });
  }

  void Do(const LookAtEndpoint& action) {
    if (etcd_ != nullptr) return LookByEtcd(action);
    Resolver resolver = options_.resolver;
    if (action.is_at_link) {
      resolver = [address = address_](const std::string&, uint16_t) {
        return Resolution{Resolution::Outcome::kFound, "", {address}};
      };
    }
    ContactOptions options = options_;
    options.endpoint_port = action.port;
    Send([options = std::move(options), is_port_here = action.is_port_here,
          resolver = std::move(resolver), identity = Identity(),
          stop = stop_] { return LookAt(options, is_port_here, resolver, identity, *stop); },
         [this](const LookResult& result) {
           address_ = result.address;
           Feed(result.seen);
         });
  }

  void LookByEtcd(const LookAtEndpoint& action) {
    Send(
        [etcd = etcd_, options = options_, is_key_only = action.is_key_only, identity = Identity(),
         stop = stop_] {
          return LookForLeader(*etcd, options.etcd, options, is_key_only, options.resolver,
                               identity, *stop);
        },
        [this, is_key_only = action.is_key_only](const LeaderLook& look) {
          if (!is_key_only) address_ = look.address;
          seen_revision_ = look.revision;
          Feed(look.seen);
        });
  }

  void HostByEtcd(bool is_leader_gone) {
    const uint64_t number = ++hostings_;
    early_loss_.reset();
    Candidacy candidacy{
        .etcd = options_.etcd,
        .run_id = options_.policy.run_id,
        .local_addr = options_.local_addr,
        .host_name = HostName(),
        .seen_revision = seen_revision_,
        .is_leader_gone = is_leader_gone,
        .job_time = std::max(options_.policy.orphan_timeout, options_.policy.join_timeout),
        .resolver = options_.resolver,
        .on_lost = [this, number, inbox = inbox_](const std::string& why) {
          inbox->Post([this, number, why] {
            if (number != hostings_) return;
            // The place may be lost before it is known here that it was won.
            if (hosted_ == nullptr) {
              early_loss_ = why;
            } else {
              Feed(HostLost{why});
            }
          });
        }};
    Coordinator::Options start = CoordinatorOptions(0);
    start.on_resigns = [this, number, inbox = inbox_](const std::string& why) {
      inbox->Post([this, number, why] {
        if (number == hostings_ && hosted_ != nullptr) Feed(HostLost{why, /*is_cut_off=*/true});
      });
    };
    Send(
        [candidacy = std::move(candidacy), start = std::move(start), etcd = etcd_,
         &clock = clock_] {
          Candidacy now = candidacy;
          now.first_member = etcd->current_member();
          return HostAsLeader(std::move(now), start, clock);
        },
        [this](ElectedHost& host) {
          hosted_ = std::move(host.coordinator);
          Feed(host.answer);
          const std::optional<std::string> lost = std::exchange(early_loss_, std::nullopt);
          if (lost && hosted_ != nullptr) Feed(HostLost{*lost});
        });
  }

  void Do(const HostHere& action) {
    if (etcd_ != nullptr) return HostByEtcd(action.is_leader_gone);
    Send(
        [options = CoordinatorOptions(action.port), host = options_.endpoint_host,
         resolver = options_.resolver, &clock = clock_] {
          Coordinator::Options start = options;
          const bool is_named = start.listen && start.listen->host.empty();
          if (is_named) start.listen->only = HostsToListenOn(host, resolver);
          return Coordinator::Start(std::move(start), clock);
        },
        [this](absl::StatusOr<std::unique_ptr<Coordinator>>& started) {
          if (started.ok()) hosted_ = *std::move(started);
          Feed(AnswerOf(started.status()));
        });
  }

  Coordinator::Options CoordinatorOptions(uint16_t port) {
    Coordinator::Options start;
    start.policy = options_.policy;
    start.identity = Identity();
    start.run_dir = options_.run_dir;
    if (options_.mode != ContactOptions::Mode::kStandalone) {
      start.listen = {.host = options_.listen_host, .port = port};
      start.is_for_own_user = !options_.listen_host.empty() && IsLoopback(options_.listen_host);
    }
    start.on_store_connection = Behind(gate_, options_.on_store_connection);
    start.log_step = Behind(gate_, options_.log_step);
    start.on_file_lost = Behind(gate_, options_.on_file_lost);
    start.on_no_descriptor = Behind(gate_, options_.on_no_descriptor);
    start.on_refused = Behind(gate_, options_.on_refused);
    start.on_bad_node = Behind(gate_, options_.on_bad_node);
    start.on_finished = [this, inbox = inbox_] { inbox->Post([this] { Feed(HostFinished{}); }); };
    return start;
  }

  std::shared_ptr<const TlsIdentity> Identity() const {
    return options_.tunnels == nullptr ? nullptr : options_.tunnels->identity();
  }

  static Hosted AnswerOf(const absl::Status& started) {
    if (started.ok()) return {};
    if (absl::IsAlreadyExists(started)) return {Hosted::Outcome::kPortTaken};
    return {Hosted::Outcome::kFailed, std::string(started.message()),
            absl::IsResourceExhausted(started)};
  }

  void Do(const StopHosting& action) {
    const std::shared_ptr<Coordinator> coordinator = std::move(hosted_);
    if (coordinator == nullptr) return Post(HostStopped{});
    Send(
        [coordinator, action] {
          action.is_resigning ? coordinator->Resign() : coordinator->Stop();
          return HostStopped{};
        },
        [this](HostStopped stopped) { Feed(stopped); });
  }

  // By which addresses others reach this node, whose link leads to `address_` or is a local one.
  std::vector<std::string> ReachedBy(bool is_local) const {
    // Others are told what the user gave, but for loopback where they are elsewhere.
    if (!options_.local_addr.empty() && !IsLoopback(options_.local_addr)) {
      return HostsToListenOn(given_);
    }
    std::vector<SocketAddress> addresses = given_;
    const std::vector<std::string> way =
        is_local ? hosted_->hosts() : std::vector{SourceTowards(address_)};
    for (const std::string& ip : way) {
      if (const auto address = ParseIp(ip, 0)) addresses.push_back(*address);
    }
    return HostsToListenOn(addresses);
  }

  void Do(const OpenLink& action) {
    if (options_.on_reached_by) options_.on_reached_by(ReachedBy(action.is_local));
    auto listener = [this, inbox = inbox_, number = ++links_](const ContactEvent& event) {
      inbox->Post([this, number, event] { Hear(number, event); });
    };
    link_ = action.is_local
                ? OpenLocalLink(hosted_->inbox(), std::move(listener))
                : OpenGrpcLink(address_, options_.tunnels.get(), std::move(listener), clock_);
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
    if (link_ != nullptr) link_->HalfClose();
  }

  void Do(const Emit& action) {
    if (!is_silent_) handler_(action.event);
  }

  const RendezvousOptions options_;
  const EventHandler handler_;
  const Clock& clock_;
  // Shared with whoever may post late: links, errands, a coordinator that stops.
  const std::shared_ptr<Mailbox> inbox_ = std::make_shared<Mailbox>();
  // Shared with the helper's errands.
  const std::shared_ptr<Interrupt> stop_ = std::make_shared<Interrupt>();
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();

  // Of the helper's errands; null where etcd has no part in it.
  const std::shared_ptr<EtcdClient> etcd_ =
      options_.mode == ContactOptions::Mode::kElected
          ? std::make_shared<EtcdClient>(options_.etcd, options_.resolver)
          : nullptr;

  // The thread's own.
  ContactCore core_;
  SocketAddress address_;             // where the last look found somebody
  std::vector<SocketAddress> given_;  // what --local-addr stands for
  std::unique_ptr<Coordinator> hosted_;
  int64_t seen_revision_ = 0;              // of the leader's key at the last look
  uint64_t hostings_ = 0;                  // tried so far: the number of the last one
  std::optional<std::string> early_loss_;  // of the place that is being won
  uint64_t links_ = 0;                     // opened so far: the number of the last one
  OwnedLink link_;
  bool is_silent_ = false;

  std::optional<HelperThread> helper_;  // nullopt: no errand may block
  std::thread thread_;
};

}  // namespace

std::unique_ptr<RendezvousClient> ConnectRendezvous(RendezvousOptions options,
                                                    RendezvousClient::EventHandler handler,
                                                    const Clock& clock) {
  return std::make_unique<Client>(std::move(options), std::move(handler), clock);
}

}  // namespace ddprun::rendezvous
