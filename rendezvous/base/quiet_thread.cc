#include "rendezvous/base/quiet_thread.h"

#include <csignal>
#include <system_error>
#include <utility>

namespace ddprun {

std::thread StartQuietThread(std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // a new thread begins with its maker's mask
  std::thread thread;
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error&) {
    // EAGAIN: the caller sees a thread that is not joinable.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace ddprun
