#include "examples/train/signal_watch.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace train {
namespace {

// The kernel sends the signal anew then. A word takes milliseconds unless its file system hangs.
void SendInTwoSeconds(int signal) {
  struct sigevent event {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = signal;
  const itimerspec limit{.it_interval = {}, .it_value = {.tv_sec = 2, .tv_nsec = 0}};
  timer_t timer{};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) {
    timer_settime(timer, 0, &limit, nullptr);
  }
}

}  // namespace

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
      // A second one ends the process at once.
      pthread_sigmask(SIG_UNBLOCK, &watched, nullptr);
      SendInTwoSeconds(signal);
      const std::lock_guard lock(shared->mutex);
      try {
        if (shared->word != nullptr) shared->word(signal);
      } catch (const std::exception& error) {  // the signal ends the process, not std::terminate()
        std::fprintf(stderr, "train: warning: the last word before SIG%s failed: %s\n",
                     sigabbrev_np(signal), error.what());
      }
      kill(getpid(), signal);
      pause();
    }).detach();
  } catch (const std::system_error&) {  // no thread: the signals end the process without a word
    pthread_sigmask(SIG_UNBLOCK, &watched, nullptr);
  }
}

void SignalWatch::SetLastWord(Word word) {
  const std::lock_guard lock(shared_->mutex);
  shared_->word = std::move(word);
}

}  // namespace train
