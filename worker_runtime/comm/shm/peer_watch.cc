#include "worker_runtime/comm/shm/peer_watch.h"

#include <sys/socket.h>

#include <cerrno>
#include <chrono>
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

PeerWatch::PeerWatch(ShmDomain& domain, std::vector<PeerLink> links)
    : domain_(domain), links_(std::move(links)) {
  for (const PeerLink& link : links_) here_.push_back(&link);
  polled_.reserve(2 * links_.size());
}

PeerWatch::~PeerWatch() {
  is_stopping_ = true;
  is_stopping_.notify_one();
  // Wakes the thread out of poll(), and nobody at the other ends: they see no more than that we
  // would not read. An eventfd would do the same for a descriptor more.
  for (const PeerLink& link : links_) shutdown(link.socket.get(), SHUT_RD);
  if (thread_.joinable()) thread_.join();
}

void PeerWatch::ThreadMain() {
  // Nobody sends after joining, so whatever poll() reports means that the peer is gone.
  constexpr int kMinuteMs = 60'000;
  constexpr std::chrono::milliseconds kRest(100);
  while (!here_.empty() && !is_stopping_) {
    // Those that are there alone: one place more than this process may have files is EINVAL.
    polled_.clear();
    for (const PeerLink* link : here_) {
      polled_.push_back({link->socket.get(), POLLIN, 0});
      if (link->pidfd != nullptr) polled_.push_back({link->pidfd->get(), POLLIN, 0});
    }
    if (poll(polled_.data(), polled_.size(), kMinuteMs) < 0) {
      // No memory for it, or its limit on files is a lower one by now: both may change.
      if (errno != EINTR) std::this_thread::sleep_for(kRest);
      continue;
    }
    if (is_stopping_) break;
    const pollfd* next = polled_.data();
    std::erase_if(here_, [&](const PeerLink* link) {
      bool is_gone = next++->revents != 0;
      if (link->pidfd != nullptr && next++->revents != 0) is_gone = true;
      if (is_gone) domain_.MarkGone(link->index);
      return is_gone;
    });
  }
  // Until it is joined: a program may end in between, and a thread that has ended by then counts as
  // a leak.
  is_stopping_.wait(false);
}

}  // namespace ddp::internal
