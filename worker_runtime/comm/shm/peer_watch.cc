#include "worker_runtime/comm/shm/peer_watch.h"

#include <poll.h>
#include <sys/socket.h>

#include <utility>

#include "rendezvous/base/quiet_thread.h"
#include "worker_runtime/comm/refused.h"

namespace ddp::internal {

absl::StatusOr<std::unique_ptr<PeerWatch>> PeerWatch::Start(ShmDomain& domain,
                                                            std::vector<PeerLink> links) {
  std::unique_ptr<PeerWatch> watch(new PeerWatch(domain, std::move(links)));
  watch->thread_ = ddprun::StartQuietThread([self = watch.get()] { self->ThreadMain(); });
  if (!watch->thread_.joinable()) return NoThread("watch this node's ranks");
  return watch;
}

PeerWatch::~PeerWatch() {
  is_stopping_ = true;
  // Wakes the thread out of poll(), and nobody at the other ends: they see no more than that we
  // would not read. An eventfd would do the same for a descriptor more.
  for (const PeerLink& link : links_) shutdown(link.socket.get(), SHUT_RD);
  if (thread_.joinable()) thread_.join();
}

void PeerWatch::ThreadMain() {
  // Nobody sends after joining, so whatever poll() reports means that the peer is gone.
  constexpr int kMinuteMs = 60'000;
  std::vector<pollfd> polled;
  for (const PeerLink& link : links_) {
    polled.push_back({link.socket.get(), POLLIN, 0});
    // poll() skips -1
    polled.push_back({link.pidfd == nullptr ? -1 : link.pidfd->get(), POLLIN, 0});
  }
  size_t here = links_.size();
  while (here > 0) {
    if (poll(polled.data(), polled.size(), kMinuteMs) < 0) continue;
    if (is_stopping_) return;
    for (size_t i = 0; i < links_.size(); ++i) {
      pollfd& socket = polled[2 * i];
      pollfd& process = polled[2 * i + 1];
      const bool was_gone = socket.fd < 0;
      if (was_gone || (socket.revents == 0 && process.revents == 0)) continue;
      domain_.MarkGone(links_[i].index);
      socket.fd = process.fd = -1;
      --here;
    }
  }
}

}  // namespace ddp::internal
