#include "launcher/agent/round_store.h"

namespace ddprun::launcher {
namespace {

using rendezvous::StoreServer;

StoreServer::Bind BindOf(RoundStore::Reach reach) {
  switch (reach) {
    case RoundStore::Reach::kThisHost:
      return StoreServer::Bind::kLoopback;
    case RoundStore::Reach::kAllHosts:
      return StoreServer::Bind::kAll;
    case RoundStore::Reach::kNone:
    case RoundStore::Reach::kOtherPort:
      return StoreServer::Bind::kNone;
  }
  return StoreServer::Bind::kNone;
}

}  // namespace

RoundStore::Reach RoundStore::ReachOf(const LaunchConfig& config) {
  switch (config.rendezvous) {
    case RendezvousKind::kStandalone:
      return Reach::kThisHost;
    case RendezvousKind::kC10d:
      return Reach::kAllHosts;
    case RendezvousKind::kStatic:
      return config.node_rank == 0 ? Reach::kOtherPort : Reach::kNone;
  }
  return Reach::kNone;
}

absl::Status RoundStore::Renew() {
  Close();
  if (reach_ == Reach::kNone) return absl::OkStatus();
  StoreServer::Options options;
  options.bind = BindOf(reach_);
  options.on_no_descriptor = on_no_descriptor_;
  absl::StatusOr<std::unique_ptr<StoreServer>> server = StoreServer::Start(options);
  if (!server.ok()) return server.status();
  const std::lock_guard lock(mutex_);
  server_ = *std::move(server);
  return absl::OkStatus();
}

void RoundStore::Close() {
  std::unique_ptr<StoreServer> old;
  {
    const std::lock_guard lock(mutex_);
    old = std::move(server_);
  }
}

void RoundStore::Adopt(UniqueFd connection) {
  const std::lock_guard lock(mutex_);
  if (server_ != nullptr) server_->Adopt(std::move(connection));
}

uint16_t RoundStore::port() const {
  const std::lock_guard lock(mutex_);
  return server_ == nullptr ? 0 : server_->port();
}

}  // namespace ddprun::launcher
