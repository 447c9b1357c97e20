#include "rendezvous/base/quiet_thread.h"

#include <doctest/doctest.h>

#include <csignal>

namespace ddprun {
namespace {

TEST_CASE("quiet thread: it takes no signal, and its maker's mask is as before") {
  sigset_t before;
  REQUIRE(pthread_sigmask(SIG_SETMASK, nullptr, &before) == 0);
  sigset_t inside;
  sigemptyset(&inside);
  std::thread thread =
      StartQuietThread([&inside] { pthread_sigmask(SIG_SETMASK, nullptr, &inside); });
  REQUIRE(thread.joinable());
  thread.join();
  sigset_t after;
  REQUIRE(pthread_sigmask(SIG_SETMASK, nullptr, &after) == 0);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD, SIGPIPE, SIGUSR1}) {
    CHECK(sigismember(&inside, signal) == 1);
    CHECK(sigismember(&after, signal) == sigismember(&before, signal));
  }
}

}  // namespace
}  // namespace ddprun
