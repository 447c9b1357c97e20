#include "rendezvous/net/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>

#include "rendezvous/base/steady_clock.h"

namespace ddprun::rendezvous {

Interrupt::Interrupt() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Interrupt::Set() const {
  eventfd_write(event_.get(), 1);  // it stays readable: nobody reads it
}

Interrupt::Ready Interrupt::WaitForFd(int fd, short events, TimePoint deadline) const {
  for (;;) {
    // poll ignores a negative descriptor. EINTR counts as a timeout that has not come yet.
    pollfd fds[2] = {{event_.get(), POLLIN, 0}, {fd, events, 0}};
    const int count = poll(fds, 2, PollTimeout(deadline));
    if (count > 0 && fds[0].revents != 0) return Ready::kInterrupted;
    if (count > 0) return Ready::kFd;
    if (SteadyNow() >= deadline) return Ready::kTimeout;
  }
}

}  // namespace ddprun::rendezvous
