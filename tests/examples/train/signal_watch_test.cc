#include "examples/train/signal_watch.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <new>
#include <string>

#include "tests/support/files.h"
#include "tests/support/in_child.h"
#include "tests/support/temp_dir.h"

namespace train {
namespace {

using ddprun::testing::InChild;
using ddprun::testing::ReadFile;
using ddprun::testing::TempDir;
using ddprun::testing::WriteFile;

// doctest has handlers of its own.
void ForgetHandlers() {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) (void)signal(number, SIG_DFL);
}

// How a process ends that sends itself `signal` and has this last word.
std::string EndBy(int signal, const SignalWatch::Word& word) {
  return InChild({}, [&] {
    ForgetHandlers();
    SignalWatch signals;
    signals.SetLastWord(word);
    kill(getpid(), signal);
    pause();
    return std::string("lives");
  });
}

TEST_CASE("signal watch: a signal ends the process after the word, which is told of it") {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const TempDir dir;
    const auto word = [&](int told) { WriteFile(dir.File("said"), std::to_string(told)); };
    CHECK(EndBy(signal, word) == "SIGNAL " + std::to_string(signal));
    CHECK(ReadFile(dir.File("said")) == std::to_string(signal));
    CHECK(EndBy(signal, nullptr) == "SIGNAL " + std::to_string(signal));
  }
}

TEST_CASE("signal watch: one signal ends the process though the word hangs") {
  const TempDir dir;
  REQUIRE(mkfifo(dir.File("hung").c_str(), 0600) == 0);
  const auto word = [&](int) { (void)open(dir.File("hung").c_str(), O_WRONLY | O_CLOEXEC); };
  CHECK(EndBy(SIGTERM, word) == "SIGNAL 15");
}

TEST_CASE("signal watch: a second signal ends the process before the word is said") {
  CHECK(EndBy(SIGTERM, [](int) { kill(getpid(), SIGINT); }) == "SIGNAL 2");
}

TEST_CASE("signal watch: the signal ends the process, not an exception of the word") {
  CHECK(EndBy(SIGTERM, [](int) { throw std::bad_alloc(); }) == "SIGNAL 15");
}

TEST_CASE("signal watch: a signal that is ignored, as by nohup, stays so") {
  CHECK(InChild({}, [] {
          ForgetHandlers();
          (void)signal(SIGHUP, SIG_IGN);
          const SignalWatch signals;
          kill(getpid(), SIGHUP);
          sigset_t blocked;
          pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
          return std::string(sigismember(&blocked, SIGTERM) == 1 ? "TERM " : "") +
                 (sigismember(&blocked, SIGHUP) == 1 ? "HUP" : "");
        }) == "TERM ");
}

}  // namespace
}  // namespace train
