#include "rendezvous/server/connect.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/agent_record.h"
#include "rendezvous/client/backoff.h"
#include "rendezvous/client/grpc_rendezvous_client.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/server/coordinator.h"
#include "rendezvous/server/hosting.h"

namespace ddprun::rendezvous {
namespace {

using Outcome = ProbeResult::Outcome;

constexpr Duration kResolveTimeout = std::chrono::seconds(30);
// How often a taken port is looked at before its holder is called another program: an agent of this
// job may have bound it a moment ago, or be closing it.
constexpr int kLooksAtTakenPort = 20;
constexpr Duration kBetweenLooks = std::chrono::milliseconds(50);

// Decides on a thread of its own who hosts, and passes commands on to the client that results.
// Until then they queue.
class ConnectingClient final : public RendezvousClient {
 public:
  ConnectingClient(RendezvousOptions options, EventHandler handler)
      : options_(std::move(options)),
        endpoint_{options_.endpoint_host, options_.endpoint_port, options_.policy.run_id},
        handler_(std::move(handler)) {
    if (options_.mode == RendezvousOptions::Mode::kStandalone && options_.local_addr.empty()) {
      Host();
    } else {
      thread_ = std::thread([this] { Decide(); });
    }
  }

  ~ConnectingClient() override { FlushAndStop(Duration{0}); }

  void Join(const NodeInfo& node) override {
    Pass([this, node](RendezvousClient& client) {
      NodeInfo complete = node;
      complete.is_endpoint_node = hosted_ != nullptr;
      client.Join(complete);
    });
  }
  void ReportFailed(Round round, const FailureReport& report, TimePoint at) override {
    Pass([=](RendezvousClient& client) { client.ReportFailed(round, report, at); });
  }
  void ReportFirstSuccess(Round round, int rank, TimePoint at) override {
    Pass([=](RendezvousClient& client) { client.ReportFirstSuccess(round, rank, at); });
  }
  void ReportSucceeded(Round round) override {
    Pass([=](RendezvousClient& client) { client.ReportSucceeded(round); });
  }
  void Leave(const std::string& reason) override {
    Pass([=](RendezvousClient& client) { client.Leave(reason); });
  }
  void AckVerdict() override {
    has_acked_ = true;
    Pass([](RendezvousClient& client) { client.AckVerdict(); });
  }

  void FlushAndStop(Duration timeout) override {
    const TimePoint deadline = SteadyNow() + timeout;
    stop_.Set();
    if (thread_.joinable()) thread_.join();
    // From here on no other thread touches the members.
    if (client_ != nullptr) client_->FlushAndStop(timeout);
    if (hosted_ == nullptr) return;
    if (has_acked_) hosted_->WaitFinished(std::max(Duration{0}, Duration(deadline - SteadyNow())));
    hosted_->Stop();
  }

 private:
  // The handler, for a coordinator of this process: a failure names the endpoint as it does for
  // the agents that reach it over the network.
  EventHandler NamingEndpoint() const {
    if (options_.mode == RendezvousOptions::Mode::kStandalone) return handler_;
    return [handler = handler_,
            where = EndpointText(endpoint_.host, endpoint_.port)](RendezvousEvent event) {
      if (auto* failed = std::get_if<RendezvousFailed>(&event)) {
        failed->message = absl::StrCat("the rendezvous at ", where, ": ", failed->message);
      }
      handler(std::move(event));
    };
  }
  using Command = std::function<void(RendezvousClient&)>;

  void Pass(Command command) {
    const std::lock_guard lock(mutex_);
    if (client_ != nullptr) {
      command(*client_);
    } else {
      queued_.push_back(std::move(command));
    }
  }

  void Adopt(std::unique_ptr<RendezvousClient> client) {
    const std::lock_guard lock(mutex_);
    client_ = std::move(client);
    for (const Command& command : queued_) command(*client_);
    queued_.clear();
  }

  void Fail(const std::string& message) { handler_(RendezvousFailed{message}); }

  void Decide() {
    give_up_resolving_at_ = SteadyNow() + options_.policy.join_timeout;
    if (!options_.local_addr.empty() &&
        !Resolve(options_.local_addr_source, options_.local_addr, 0)) {
      return;
    }
    if (options_.mode == RendezvousOptions::Mode::kStandalone) {
      Host();
      return;
    }
    const MachineNames machine = ThisMachine();
    std::optional<bool> hosts = HostsByName(options_, machine);
    if (!hosts) hosts = AskResolver(machine);
    if (!hosts) return;  // failed, and said so, or stopped
    if (!*hosts) {
      BeClient();
      return;
    }
    for (int look = 0; !Host(); ++look) {
      if (!LookAtTakenPort(look)) return;
    }
  }

  void BeClient() {
    Adopt(StartGrpcClient(GrpcClientOptions{.endpoint = endpoint_, .policy = options_.policy},
                          handler_));
  }

  // Whether the endpoint's addresses are ours; nullopt: it ended without an answer.
  std::optional<bool> AskResolver(const MachineNames& machine) {
    const auto addresses = Resolve(absl::StrCat("endpoint ", PlaceText(endpoint_, {})),
                                   endpoint_.host, endpoint_.port);
    if (!addresses) return std::nullopt;
    return HostsByAddress(*addresses, machine);
  }

  // The addresses of a name that `source` gave; nullopt: it ended without them.
  std::optional<std::vector<SocketAddress>> Resolve(const std::string& source,
                                                    const std::string& host, uint16_t port) {
    Backoff backoff;
    std::string told;
    while (stop_.Wait(backoff.Next(SteadyNow(), 0.5))) {
      const Resolution names = ResolveName(host, port, kResolveTimeout, stop_);
      if (names.outcome == Resolution::Outcome::kFound) return names.addresses;
      if (names.outcome == Resolution::Outcome::kInterrupted) return std::nullopt;
      const std::string trouble =
          absl::StrCat(source, ": cannot resolve \"", host, "\": ", names.error,
                       "; expected a host name that resolves here, or an IP address");
      const TimePoint now = SteadyNow();
      if (names.outcome == Resolution::Outcome::kNoSuchName || now >= give_up_resolving_at_) {
        Fail(trouble);
        return std::nullopt;
      }
      if (std::exchange(told, trouble) == trouble) continue;
      handler_(Waiting{absl::StrCat("waiting for ", trouble), give_up_resolving_at_});
    }
    return std::nullopt;
  }

  // Becomes the coordinator, and its first client. False: the port is taken. Other trouble is
  // reported, and ends it.
  bool Host() {
    Coordinator::Options start;
    start.policy = options_.policy;
    start.run_dir = options_.run_dir;
    start.on_store_connection = options_.on_store_connection;
    start.log_step = options_.log_step;
    start.on_no_descriptor = options_.on_no_descriptor;
    if (options_.mode != RendezvousOptions::Mode::kStandalone) {
      start.listen = Coordinator::Listen{.host = "", .port = options_.endpoint_port};
    }
    absl::StatusOr<std::unique_ptr<Coordinator>> started = Coordinator::Start(std::move(start));
    if (absl::IsAlreadyExists(started.status())) return false;
    if (!started.ok()) {
      Fail(absl::StrCat("cannot host the rendezvous: ", started.status().message()));
      return true;
    }
    std::unique_ptr<RendezvousClient> client = (*started)->AttachLocal(NamingEndpoint());
    {
      const std::lock_guard lock(mutex_);
      hosted_ = *std::move(started);
    }
    const bool has_port = options_.mode != RendezvousOptions::Mode::kStandalone;
    handler_(ContactMade{has_port ? PlaceText(endpoint_, {}) : "", true});
    Adopt(std::move(client));
    return true;
  }

  // Who holds the port that we would host on? True: perhaps nobody any more, bind again.
  bool LookAtTakenPort(int look) {
    Endpoint here = endpoint_;
    here.host = "localhost";
    const SeekResult result = SeekOnce(here, ResolveName, stop_);
    const std::string taken = absl::StrCat("port ", endpoint_.port, " of this machine, which ",
                                           options_.endpoint_source, " names, ");
    switch (result.probe.outcome) {
      case Outcome::kOurs:
        BeClient();
        return false;
      case Outcome::kInterrupted:
        return false;
      case Outcome::kOtherRun:
        Fail(absl::StrCat(taken, "serves the run \"", result.probe.text, "\", not \"",
                          endpoint_.run_id,
                          "\": use another port, or, for the same job, the same --rdzv_id"));
        return false;
      case Outcome::kForeign:
      case Outcome::kSilent:
        Fail(absl::StrCat(taken, "is in use by another program: use another port"));
        return false;
      case Outcome::kClosed:
      case Outcome::kRefused:
      case Outcome::kUnreachable:
        break;
    }
    if (look + 1 < kLooksAtTakenPort) return stop_.Wait(kBetweenLooks);
    Fail(absl::StrCat(taken, "is in use by another program: use another port"));
    return false;
  }

  const RendezvousOptions options_;
  const Endpoint endpoint_;
  const EventHandler handler_;
  const Interrupt stop_;
  bool has_acked_ = false;  // the agent's thread only

  std::mutex mutex_;
  std::deque<Command> queued_;
  // In this order: the client goes first.
  std::unique_ptr<Coordinator> hosted_;
  std::unique_ptr<RendezvousClient> client_;

  TimePoint give_up_resolving_at_{};  // the thread's own, for all names together
  std::thread thread_;
};

}  // namespace

std::unique_ptr<RendezvousClient> ConnectRendezvous(RendezvousOptions options,
                                                    RendezvousClient::EventHandler handler) {
  return std::make_unique<ConnectingClient>(std::move(options), std::move(handler));
}

}  // namespace ddprun::rendezvous
