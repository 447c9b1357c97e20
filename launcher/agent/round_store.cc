#include "launcher/agent/round_store.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "launcher/agent/agent_policy.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/client/greet.h"
#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/net/interrupt.h"
#include "rendezvous/net/listening_socket.h"
#include "rendezvous/net/socket_address.h"
#include "worker_runtime/comm/host_key.h"

namespace ddprun::launcher {
namespace {

using rendezvous::SocketAddress;
using rendezvous::StoreServer;

// A port on which nobody listens and which the kernel gives to nobody: bound, so that only who sets
// SO_REUSEADDR, as PyTorch's store does, may bind it too, and listen. To find a free one and let go
// of it would leave it to anybody until the worker has come so far.
absl::StatusOr<UniqueFd> KeepPort() {
  for (const char* any : {"::", "0.0.0.0"}) {
    const rendezvous::SocketAddress address = *rendezvous::ParseIp(any, 0);
    UniqueFd fd(socket(address.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd.is_open()) continue;
    const int on = 1;
    const int off = 0;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));  // not of an IPv4 socket
    if (bind(fd.get(), address.get(), address.size) == 0) return fd;
  }
  return absl::UnavailableError(
      absl::StrCat("keep a port for the workers' store: ", std::strerror(errno)));
}

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
  const bool is_alone =
      config.rendezvous == RendezvousKind::kStandalone || !LoopbackOf(config).empty();
  return is_alone && is_loopback ? Reach::kThisHost : Reach::kAllHosts;
}

absl::Status RoundStore::Renew() {
  Close();
  if (reach_ == Reach::kNone) return absl::OkStatus();
  if (reach_ == Reach::kWorkers) {
    absl::StatusOr<UniqueFd> kept = KeepPort();
    const std::lock_guard lock(mutex_);
    if (kept.ok()) kept_port_ = *std::move(kept);
    return kept.status();
  }
  StoreServer::Options options;
  const bool is_plain = tunnels_ == nullptr;
  if (reach_ == Reach::kOtherPort && is_plain) options.bind = StoreServer::Bind::kNone;
  if (reach_ == Reach::kAllHosts && is_plain) options.bind = StoreServer::Bind::kAll;
  options.on_no_descriptor = on_no_descriptor_;
  absl::StatusOr<std::unique_ptr<StoreServer>> server = StoreServer::Start(options);
  if (!server.ok()) return server.status();
  {
    const std::lock_guard lock(mutex_);
    server_ = *std::move(server);
  }
  return reach_ == Reach::kAllHosts && !is_plain ? OpenDoor() : absl::OkStatus();
}

absl::Status RoundStore::OpenDoor() {
  absl::StatusOr<UniqueFd> socket = rendezvous::ListenOn("", 0);
  if (!socket.ok()) return socket.status();
  const uint16_t port = rendezvous::LocalPort(socket->get());
  rendezvous::PortListener::Handlers handlers;
  handlers.on_store = [this](UniqueFd fd) { Adopt(std::move(fd)); };
  handlers.on_no_descriptor = on_no_descriptor_;
  handlers.identity = tunnels_->identity();
  handlers.end_limit = Duration{0};  // the round is over: nobody waits for a store's last word
  auto door = rendezvous::PortListener::Start(*std::move(socket), std::move(handlers));
  if (!door.ok()) return door.status();
  const std::lock_guard lock(mutex_);
  door_ = *std::move(door);
  door_port_ = port;
  return absl::OkStatus();
}

void RoundStore::Close() {
  // The door's thread may be about to Adopt.
  std::unique_ptr<rendezvous::PortListener> old_door;
  std::unique_ptr<StoreServer> old;
  {
    const std::lock_guard lock(mutex_);
    old_door = std::move(door_);
    old = std::move(server_);
    kept_port_.Reset();
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
  if (door_ != nullptr) return door_port_;
  return server_ == nullptr ? 0 : server_->port();
}

}  // namespace ddprun::launcher
