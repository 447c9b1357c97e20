#include "examples/train/signal_watch.h"

#include <signal.h>
#include <unistd.h>

#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace train {

struct SignalWatch::Shared {
  std::mutex mutex;
  Word word;  // guarded by mutex
};

SignalWatch::SignalWatch() : shared_(std::make_shared<Shared>()) {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    struct sigaction action {};
    // One that is ignored, as by nohup, stays so.
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
      sigaddset(&watched, signal);
    }
  }
  pthread_sigmask(SIG_BLOCK, &watched, nullptr);
  try {
    std::thread([shared = shared_, watched] {
      int signal = 0;
      while (sigwait(&watched, &signal) != 0) {
      }
      // A second one ends the process at once, should a file system hang.
      pthread_sigmask(SIG_UNBLOCK, &watched, nullptr);
      const std::lock_guard lock(shared->mutex);
      if (shared->word != nullptr) shared->word(signal);
      kill(getpid(), signal);
      pause();
    }).detach();
  } catch (const std::system_error&) {  // no thread: the signals end the process without a word
    pthread_sigmask(SIG_UNBLOCK, &watched, nullptr);
  }
}

void SignalWatch::Say(Word word) {
  const std::lock_guard lock(shared_->mutex);
  shared_->word = std::move(word);
}

}  // namespace train
