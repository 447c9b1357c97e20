#include "rendezvous/store/store_server.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "rendezvous/net/listening_socket.h"
#include "rendezvous/store/shard.h"

namespace ddprun::rendezvous {

class StoreServer::Impl : public ShardPeers {
 public:
  explicit Impl(const Options& options) : shared_(options) {}

  absl::Status Start() {
    UniqueFd listening;
    if (shared_.options.bind != Bind::kNone) {
      auto socket = ListenOn(shared_.options.bind == Bind::kLoopback ? "127.0.0.1" : "",
                             shared_.options.port);
      if (!socket.ok()) {
        return absl::Status(socket.status().code(),
                            absl::StrCat("store: ", socket.status().message()));
      }
      listening = *std::move(socket);
      port_ = LocalPort(listening.get());
    }
    const std::lock_guard lock(mutex_);
    auto first = StoreShard::Start(0, std::move(listening), shared_, *this);
    if (!first.ok()) return first.status();
    shards_[0] = std::move(*first);
    return absl::OkStatus();
  }

  void Place(UniqueFd connection) override {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return;
    ShardForNext().Adopt(std::move(connection));
  }

  void Wake(const KvStore::Woken& woken) override {
    const std::lock_guard lock(mutex_);
    const auto& shard = shards_[static_cast<size_t>(StoreShard::ShardOfClient(woken.client))];
    if (shard != nullptr) shard->Wake(woken);
  }

  void Close() {
    std::array<std::unique_ptr<StoreShard>, StoreShard::kMaxShards> shards;
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
      shards.swap(shards_);
    }
    // All threads end before the first shard goes: they call each other through us.
    for (auto& shard : shards) {
      if (shard != nullptr) shard->Stop();
    }
  }

  uint16_t port() const { return port_; }

  Stats stats() {
    Stats stats;
    stats.accepted = shared_.accepted;
    stats.open = shared_.open;
    stats.dropped_silent = shared_.dropped_silent;
    stats.dropped_protocol = shared_.dropped_protocol;
    stats.accept_rests = shared_.accept_rests;
    const std::lock_guard lock(shared_.mutex);
    stats.keys = static_cast<uint64_t>(shared_.store.key_count());
    stats.waiting = shared_.store.waiting_count();
    return stats;
  }

 private:
  // Fills one thread before it starts the next. REQUIRES: mutex_ is held, not closed.
  StoreShard& ShardForNext() {
    const int threads = std::clamp(shared_.options.max_threads, 1, StoreShard::kMaxShards);
    const auto per_thread =
        static_cast<uint64_t>(std::max(shared_.options.connections_per_thread, 1));
    const auto index = static_cast<size_t>(placed_++ / per_thread % static_cast<uint64_t>(threads));
    if (shards_[index] == nullptr) {
      auto shard = StoreShard::Start(static_cast<int>(index), UniqueFd(), shared_, *this);
      if (!shard.ok()) return *shards_[0];  // Slower, but served.
      shards_[index] = std::move(*shard);
    }
    return *shards_[index];
  }

  StoreShared shared_;
  uint16_t port_ = 0;
  std::mutex mutex_;
  bool is_closed_ = false;
  uint64_t placed_ = 0;
  std::array<std::unique_ptr<StoreShard>, StoreShard::kMaxShards> shards_;
};

absl::StatusOr<std::unique_ptr<StoreServer>> StoreServer::Start(const Options& options) {
  auto impl = std::make_unique<Impl>(options);
  if (absl::Status status = impl->Start(); !status.ok()) return status;
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(impl)));
}

StoreServer::StoreServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

StoreServer::~StoreServer() { Close(); }

void StoreServer::Adopt(UniqueFd connection) {
  const int flags = fcntl(connection.get(), F_GETFL);
  if (flags < 0 || fcntl(connection.get(), F_SETFL, flags | O_NONBLOCK) != 0) return;
  fcntl(connection.get(), F_SETFD, FD_CLOEXEC);
  impl_->Place(std::move(connection));
}

void StoreServer::Close() { impl_->Close(); }

uint16_t StoreServer::port() const { return impl_->port(); }

StoreServer::Stats StoreServer::stats() const { return impl_->stats(); }

}  // namespace ddprun::rendezvous
