#include "launcher/agent/round_store.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "launcher/agent/agent_policy.h"
#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/net/listening_socket.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::launcher {
namespace {

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

}  // namespace

RoundStore::Reach RoundStore::ReachOf(const LaunchConfig& config, const Environment& environment) {
  const bool is_static = config.rendezvous == RendezvousKind::kStatic;
  if (!is_static && environment.Get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == "1") {
    return Reach::kWorkers;
  }
  if (is_static) return config.node_rank == 0 ? Reach::kOtherPort : Reach::kNone;
  // Workers connect to the address that the user gave.
  const bool is_loopback = config.local_addr.empty() || rendezvous::IsLoopback(config.local_addr);
  const bool is_alone = config.rendezvous == RendezvousKind::kStandalone || MeetsOnLoopback(config);
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
  if (reach_ == Reach::kOtherPort) options.bind = StoreServer::Bind::kNone;
  if (reach_ == Reach::kAllHosts) options.bind = StoreServer::Bind::kAll;
  options.on_no_descriptor = on_no_descriptor_;
  absl::StatusOr<std::unique_ptr<StoreServer>> server = StoreServer::Start(options);
  const std::lock_guard lock(mutex_);
  if (server.ok()) server_ = *std::move(server);
  return server.status();
}

void RoundStore::Close() {
  std::unique_ptr<StoreServer> old;
  const std::lock_guard lock(mutex_);
  old = std::move(server_);
  kept_port_.Reset();
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
