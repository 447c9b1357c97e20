#include "rendezvous/base/quiet_thread.h"

#include <csignal>
#include <new>
#include <system_error>
#include <utility>

namespace ddprun {

namespace {

// While it lives its thread takes no signal.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

std::thread StartQuietThread(std::function<void()> body) {
  const BlockedSignals blocked;  // a new thread begins with its maker's mask
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error&) {
    // EAGAIN: the caller sees a thread that is not joinable.
  } catch (const std::bad_alloc&) {
    // What a thread begins with is on the heap.
  }
  return std::thread();
}

}  // namespace ddprun
