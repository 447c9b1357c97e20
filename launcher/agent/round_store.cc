#include "launcher/agent/round_store.h"

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "launcher/agent/agent_policy.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/greet.h"
#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/net/interrupt.h"
#include "rendezvous/net/listening_socket.h"
#include "rendezvous/net/own_addresses.h"
#include "rendezvous/net/socket_address.h"
#include "worker_runtime/comm/host_key.h"

namespace ddprun::launcher {
namespace {

using rendezvous::SocketAddress;
using rendezvous::StoreServer;

// By which other nodes reach this one, on its way to `host`. Where that is this very machine, or no
// way is known, the default route tells, as it does for PyTorch's backend.
std::string OwnAddressToward(const std::string& host, uint16_t port) {
  constexpr char kElsewhere[] = "192.0.2.1";  // of nobody (RFC 5737)
  for (const std::string& there : {host, std::string(kElsewhere)}) {
    const std::string address = ddp::internal::LocalAddressToward(there, port);
    if (!address.empty() && !rendezvous::IsLoopback(address)) return address;
  }
  return "";
}

// A name may stand for several, as of a machine with two networks, and not all lead there.
SocketAddress FirstThatAnswers(const std::vector<SocketAddress>& addresses,
                               const std::shared_ptr<const rendezvous::TlsIdentity>& identity) {
  using Outcome = rendezvous::Looked::Outcome;
  for (const SocketAddress& address : addresses) {
    if (addresses.size() == 1) break;
    const Outcome outcome =
        rendezvous::Greet(address, identity, rendezvous::Interrupt()).trouble.outcome;
    if (outcome != Outcome::kRefused && outcome != Outcome::kUnreachable) return address;
  }
  return addresses.front();
}

}  // namespace

RoundStore::Reach RoundStore::ReachOf(const LaunchConfig& config, const Environment& environment) {
  const bool is_static = config.rendezvous == RendezvousKind::kStatic;
  if (!is_static && environment.Get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == "1") {
    return Reach::kWorkers;
  }
  if (is_static) return config.node_rank == 0 ? Reach::kOtherPort : Reach::kNone;
  // Workers connect to the address that the user gave.
  const bool is_loopback = config.local_addr.empty() || rendezvous::IsLoopback(config.local_addr);
  return IsOnThisHost(config) && is_loopback ? Reach::kThisHost : Reach::kAllHosts;
}

absl::Status RoundStore::Renew() {
  Close();
  if (reach_ == Reach::kNone) return absl::OkStatus();
  UniqueFd kept_port;
  if (reach_ == Reach::kWorkers || reach_ == Reach::kAllHosts) {
    absl::StatusOr<UniqueFd> kept = rendezvous::KeepPort();
    if (!kept.ok()) return kept.status();
    kept_port = *std::move(kept);
  }
  std::unique_ptr<StoreServer> server;
  if (reach_ != Reach::kWorkers) {
    StoreServer::Options options;
    const bool is_on_loopback = reach_ == Reach::kThisHost || tunnels_ != nullptr;
    if (!is_on_loopback) options.bind = StoreServer::Bind::kNone;
    options.on_no_descriptor = on_no_descriptor_;
    absl::StatusOr<std::unique_ptr<StoreServer>> started =
        StoreServer::Start(options, SteadyClock());
    if (!started.ok()) return started.status();
    server = *std::move(started);
  }
  const std::lock_guard lock(mutex_);
  server_ = std::move(server);
  kept_port_ = std::move(kept_port);
  return ListenForOthers();
}

absl::Status RoundStore::BeReachedBy(std::vector<std::string> hosts) {
  const std::lock_guard lock(mutex_);
  reached_by_ = std::move(hosts);
  return ListenForOthers();
}

absl::Status RoundStore::ListenForOthers() {
  const bool is_open = reach_ == Reach::kAllHosts && server_ != nullptr;
  if (!is_open || !reached_by_ || is_open_everywhere_) return absl::OkStatus();
  // Where some listen already, one for all addresses finds the port taken.
  const bool is_by_any = reached_by_->empty() && !open_hosts_.empty();
  std::vector<std::string> hosts;
  for (const std::string& host : is_by_any ? rendezvous::EveryOwnAddress() : *reached_by_) {
    if (!open_hosts_.contains(host)) hosts.push_back(host);
  }
  // What comes to a round that can be reached already may be missing: an address that has gone.
  const auto listen = open_hosts_.empty() ? rendezvous::ListenOnEach : rendezvous::ListenOnThose;
  absl::StatusOr<rendezvous::ListeningSockets> listening =
      listen(hosts, rendezvous::LocalPort(kept_port_.get()));
  if (!listening.ok()) {
    return absl::Status(listening.status().code(),
                        absl::StrCat("the workers' store: ", listening.status().message()));
  }
  is_open_everywhere_ = listening->is_everywhere;
  open_hosts_.insert(listening->hosts.begin(), listening->hosts.end());
  if (listening->sockets.empty()) return absl::OkStatus();
  if (tunnels_ != nullptr) return OpenDoor(std::move(listening->sockets));
  for (UniqueFd& socket : listening->sockets) server_->Serve(std::move(socket));
  return absl::OkStatus();
}

absl::Status RoundStore::OpenDoor(std::vector<UniqueFd> sockets) {
  rendezvous::PortListener::Handlers handlers;
  handlers.on_store = [this](UniqueFd fd) { Adopt(std::move(fd)); };
  handlers.on_no_descriptor = on_no_descriptor_;
  handlers.identity = tunnels_->identity();
  handlers.end_limit = Duration{0};  // the round is over: nobody waits for a store's last word
  auto door =
      rendezvous::PortListener::Start(std::move(sockets), std::move(handlers), SteadyClock());
  if (!door.ok()) return door.status();
  doors_.push_back(*std::move(door));
  return absl::OkStatus();
}

void RoundStore::Close() {
  // A door's thread may be about to Adopt.
  std::vector<std::unique_ptr<rendezvous::PortListener>> old_doors;
  std::unique_ptr<StoreServer> old;
  {
    const std::lock_guard lock(mutex_);
    old_doors.swap(doors_);
    old = std::move(server_);
    kept_port_.Reset();
    open_hosts_.clear();
    is_open_everywhere_ = false;
  }
  if (tunnels_ != nullptr) tunnels_->Relay({}, {});
}

absl::StatusOr<RoundStore::Way> RoundStore::WayTo(const rendezvous::Assignment& assignment) {
  const std::string& host = assignment.master_addr;
  if (tunnels_ == nullptr || reach_ == Reach::kThisHost || reach_ == Reach::kWorkers) {
    return Way{host, assignment.master_port, ""};
  }
  Way way{"127.0.0.1", 0, OwnAddressToward(host, assignment.master_port)};
  if (assignment.node_rank == 0) {
    const std::lock_guard lock(mutex_);
    if (server_ != nullptr) way.port = server_->port();
    return way;
  }
  const rendezvous::Resolution found = rendezvous::ResolveName(host, assignment.master_port);
  if (found.outcome != rendezvous::Resolution::Outcome::kFound) {
    return absl::NotFoundError(
        absl::StrCat("find the node of rank 0, ", EscapeControl(host), ": ", found.error));
  }
  absl::StatusOr<UniqueFd> door = rendezvous::ListenOn("127.0.0.1", 0);
  if (!door.ok()) return door.status();
  way.port = rendezvous::LocalPort(door->get());
  tunnels_->Relay(*std::move(door), FirstThatAnswers(found.addresses, tunnels_->identity()));
  return way;
}

void RoundStore::Adopt(UniqueFd connection) {
  const std::lock_guard lock(mutex_);
  if (server_ != nullptr) server_->Adopt(std::move(connection));
}

uint16_t RoundStore::port() const {
  const std::lock_guard lock(mutex_);
  if (kept_port_.is_open()) return rendezvous::LocalPort(kept_port_.get());
  return server_ == nullptr ? 0 : server_->port();
}

}  // namespace ddprun::launcher
