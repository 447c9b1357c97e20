#include "worker_runtime/comm/shm/peer_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "rendezvous/base/check.h"

namespace ddp::internal {

PeerWatch::PeerWatch(ShmDomain& domain, std::vector<PeerLink> links)
    : domain_(domain), links_(std::move(links)), stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  DDP_CHECK(stop_.is_open());
  thread_ = std::thread([this] { ThreadMain(); });
}

PeerWatch::~PeerWatch() {
  const uint64_t one = 1;
  DDP_CHECK(write(stop_.get(), &one, sizeof one) == sizeof one);
  thread_.join();
}

void PeerWatch::ThreadMain() {
  // Nobody sends after joining, so whatever poll() reports means that the peer is gone.
  constexpr int kMinuteMs = 60'000;
  while (true) {
    std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0}};
    for (const PeerLink& link : links_) {
      polled.push_back({link.socket.get(), POLLIN, 0});
      polled.push_back({link.pidfd.get(), POLLIN, 0});  // poll() skips -1
    }
    if (poll(polled.data(), polled.size(), kMinuteMs) <= 0) continue;
    if (polled[0].revents != 0) return;
    std::vector<PeerLink> remaining;
    for (size_t i = 0; i < links_.size(); ++i) {
      if (polled[1 + 2 * i].revents != 0 || polled[2 + 2 * i].revents != 0) {
        domain_.MarkGone(links_[i].index);
      } else {
        remaining.push_back(std::move(links_[i]));
      }
    }
    links_ = std::move(remaining);
  }
}

}  // namespace ddp::internal
