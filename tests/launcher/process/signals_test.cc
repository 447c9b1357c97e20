#include "launcher/process/signals.h"

#include <unistd.h>

#include <csignal>
#include <vector>

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>

#include "tests/launcher/process/process_testing.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using namespace ddprun::testing;

TimePoint At(Duration since_start) { return TimePoint(since_start); }

// What a program sent; `sender` is its pid.
struct FromProgram {
  SignalClassifier classifier{};
  std::optional<SignalMeaning> operator()(int signal, pid_t sender, Duration at) {
    return classifier.Classify(signal, sender, false, At(at));
  }
};

std::optional<SignalMeaning> CtrlC(SignalClassifier& classifier, Duration at) {
  return classifier.Classify(SIGINT, 0, true, At(at));
}

// no limit: pure
TEST_CASE("signals: the first stop signal stops, a second one by a program shortens nothing") {
  for (const int first : {SIGINT, SIGTERM, SIGHUP}) {
    for (const int second : {SIGINT, SIGTERM, SIGHUP}) {
      for (const Duration delay : {0ms, 10ms, 300ms, 990ms, 1010ms, 5000ms, 19000ms}) {
        FromProgram received;
        CHECK(received(first, 7, 0s) == SignalMeaning::kStop);
        CHECK(received(second, 8, delay) == SignalMeaning::kAgain);
      }
    }
  }
}

// no limit: pure
TEST_CASE("signals: a third order kills, whoever gives it") {
  for (const int third : {SIGINT, SIGTERM, SIGQUIT}) {
    FromProgram received;
    CHECK(received(SIGTERM, 7, 0s) == SignalMeaning::kStop);
    CHECK(received(SIGTERM, 8, 1ms) == SignalMeaning::kAgain);
    CHECK(received(third, 9, 250ms) == SignalMeaning::kKillNow);
  }
}

// no limit: pure
// As from `kill -TERM -- -GROUP` of `timeout 1h uv run ddprun`.
TEST_CASE("signals: what several front ends pass on at once kills nobody") {
  FromProgram received;
  CHECK(received(SIGTERM, 5, 0ms) == SignalMeaning::kStop);
  for (int sender = 6; sender < 10; ++sender) {
    CHECK(received(SIGTERM, sender, 249ms) == SignalMeaning::kAgain);
  }
  CHECK(received(SIGTERM, 5, 250ms) == SignalMeaning::kKillNow);
}

// no limit: pure
TEST_CASE(
    "signals: a person's second ^C kills, a front end that passes the first one on does not") {
  SignalClassifier classifier;
  CHECK(CtrlC(classifier, 0s) == SignalMeaning::kStop);
  SUBCASE("alone") {}
  SUBCASE("passed on") {
    CHECK(classifier.Classify(SIGINT, 7, false, At(1ms)) == SignalMeaning::kAgain);
  }
  CHECK(CtrlC(classifier, 3s) == SignalMeaning::kKillNow);
}

TEST_CASE("signals: one ^C after a program's TERM shortens nothing, two do") {
  SignalClassifier classifier;
  CHECK(classifier.Classify(SIGTERM, 7, false, At(0s)) == SignalMeaning::kStop);
  CHECK(CtrlC(classifier, 1s) == SignalMeaning::kAgain);
  CHECK(CtrlC(classifier, 2s) == SignalMeaning::kKillNow);
}

TEST_CASE("signals: QUIT after another stop kills; a QUIT that is passed on does not") {
  FromProgram received;
  SUBCASE("after TERM") {
    CHECK(received(SIGTERM, 7, 0s) == SignalMeaning::kStop);
    CHECK(received(SIGQUIT, 7, 1s) == SignalMeaning::kKillNow);
  }
  SUBCASE("after QUIT") {
    CHECK(received(SIGQUIT, 7, 0s) == SignalMeaning::kStop);
    CHECK(received(SIGQUIT, 8, 1s) == SignalMeaning::kAgain);
  }
  SUBCASE("of the terminal") {
    CHECK(received.classifier.Classify(SIGQUIT, 0, true, At(0s)) == SignalMeaning::kStop);
    CHECK(received.classifier.Classify(SIGQUIT, 0, true, At(1s)) == SignalMeaning::kKillNow);
  }
}

TEST_CASE("signals: a terminal that closes sends several HUPs, which are one order") {
  SignalClassifier classifier;
  CHECK(classifier.Classify(SIGHUP, 0, true, At(0s)) == SignalMeaning::kStop);
  for (int i = 1; i < 5; ++i) {
    CHECK(classifier.Classify(SIGHUP, i % 2 == 0 ? 7 : 0, i % 2 != 0, At(1s)) ==
          SignalMeaning::kAgain);
  }
  CHECK(classifier.Classify(SIGTERM, 8, false, At(2s)) == SignalMeaning::kAgain);
}

// no limit: pure
TEST_CASE("signals: one sender's signal to the process and then to its group counts once") {
  FromProgram received;
  for (const Duration order : {0ms, 1000ms}) {
    CHECK(received(SIGTERM, 7, order) ==
          (order == 0ms ? SignalMeaning::kStop : SignalMeaning::kAgain));
    CHECK(received(SIGTERM, 7, order + 1ms) == std::nullopt);
  }
  CHECK(received(SIGTERM, 7, 1020ms) == SignalMeaning::kKillNow);
}

TEST_CASE("signals: user signals and job control mean the same before and after a stop") {
  SignalClassifier classifier;
  for (int round = 0; round < 2; ++round) {
    CHECK(classifier.Classify(SIGUSR1, 7, false, At(0s)) == SignalMeaning::kRelay);
    CHECK(classifier.Classify(SIGUSR2, 7, false, At(0s)) == SignalMeaning::kRelay);
    CHECK(classifier.Classify(SIGTSTP, 7, false, At(0s)) == SignalMeaning::kSuspend);
    CHECK(classifier.Classify(SIGCONT, 7, false, At(0s)) == SignalMeaning::kResume);
    classifier.Classify(SIGTERM, 7, false, At(0s));
  }
}

TEST_CASE("signals: what the user names besides stops the job, and the others keep their meaning") {
  SignalClassifier classifier(BitOf(SIGUSR1) | BitOf(SIGTSTP) | BitOf(SIGALRM));
  CHECK(classifier.Classify(SIGUSR2, 7, false, At(0s)) == SignalMeaning::kRelay);
  CHECK(classifier.Classify(SIGCONT, 7, false, At(0s)) == SignalMeaning::kResume);
  SUBCASE("USR1") { CHECK(classifier.Classify(SIGUSR1, 7, false, At(1s)) == SignalMeaning::kStop); }
  SUBCASE("TSTP") { CHECK(classifier.Classify(SIGTSTP, 7, false, At(1s)) == SignalMeaning::kStop); }
  SUBCASE("ALRM") { CHECK(classifier.Classify(SIGALRM, 7, false, At(1s)) == SignalMeaning::kStop); }
  SUBCASE("TERM") { CHECK(classifier.Classify(SIGTERM, 7, false, At(1s)) == SignalMeaning::kStop); }
  // Slurm warns with one and again with the next: these are no impatience.
  for (int i = 0; i < 3; ++i) {
    CHECK(classifier.Classify(SIGALRM, 8, false, At(2s + i * 1s)) == SignalMeaning::kAgain);
  }
  CHECK(classifier.Classify(SIGINT, 7, false, At(6s)) == SignalMeaning::kAgain);
  CHECK(classifier.Classify(SIGINT, 7, false, At(7s)) == SignalMeaning::kKillNow);
}

// no limit: pure
TEST_CASE("signals: --preempt_signal asks, however often it comes") {
  SignalClassifier classifier(0, SIGUSR1);
  CHECK(classifier.Classify(SIGUSR1, 7, false, At(0ms)) == SignalMeaning::kAsk);
  CHECK(classifier.Classify(SIGUSR1, 7, false, At(1ms)) == std::nullopt);
  CHECK(classifier.Classify(SIGUSR1, 7, false, At(1s)) == SignalMeaning::kAsk);
  CHECK(classifier.Classify(SIGUSR2, 7, false, At(1s)) == SignalMeaning::kRelay);
  CHECK(classifier.Classify(SIGTERM, 7, false, At(1s)) == SignalMeaning::kStop);
}

// no limit: pure
TEST_CASE("signals: a TERM that asks stops when it comes again, but not when it is passed on") {
  SignalClassifier classifier(0, SIGTERM);
  SUBCASE("again") {
    CHECK(classifier.Classify(SIGTERM, 7, false, At(0ms)) == SignalMeaning::kAsk);
    CHECK(classifier.Classify(SIGTERM, 7, false, At(1ms)) == std::nullopt);
    CHECK(classifier.Classify(SIGTERM, 8, false, At(2ms)) == SignalMeaning::kAsk);
    CHECK(classifier.Classify(SIGTERM, 8, false, At(1990ms)) == SignalMeaning::kAsk);
    CHECK(classifier.Classify(SIGTERM, 7, false, At(2s)) == SignalMeaning::kStop);
    CHECK(classifier.Classify(SIGTERM, 7, false, At(3s)) == SignalMeaning::kAgain);
    CHECK(classifier.Classify(SIGTERM, 7, false, At(4s)) == SignalMeaning::kKillNow);
  }
  SUBCASE("after ^C") {
    CHECK(CtrlC(classifier, 0s) == SignalMeaning::kStop);
    CHECK(classifier.Classify(SIGTERM, 7, false, At(1s)) == SignalMeaning::kAgain);
  }
}

TEST_CASE("signals: the receiver says which signal came and from whom") {
  boost::asio::io_context io;
  std::vector<ReceivedSignal> received;
  SignalReceiver receiver(io, TestBaseline(), 0, 0,
                          [&](const ReceivedSignal& signal) { received.push_back(signal); });
  kill(getpid(), SIGUSR1);
  REQUIRE(RunUntil(io, [&] { return received.size() == 1; }));
  kill(getpid(), SIGTERM);
  REQUIRE(RunUntil(io, [&] { return received.size() == 2; }));
  CHECK(received[0].meaning == SignalMeaning::kRelay);
  CHECK(received[0].signal == SIGUSR1);
  CHECK(received[1].meaning == SignalMeaning::kStop);
  CHECK(received[1].signal == SIGTERM);
  CHECK(received[1].sender == getpid());
}

TEST_CASE("signals: the receiver hears what the user names besides") {
  boost::asio::io_context io;
  const SignalBits more = BitsOf({SIGALRM, SIGUSR1});
  // Blocked as PrepareAgentProcess would have it, on this thread, for good.
  REQUIRE(PrepareAgentProcess(TestBaseline(), more).ok());
  std::vector<ReceivedSignal> received;
  SignalReceiver receiver(io, TestBaseline(), more, 0,
                          [&](const ReceivedSignal& signal) { received.push_back(signal); });
  kill(getpid(), SIGUSR1);
  REQUIRE(RunUntil(io, [&] { return received.size() == 1; }));
  kill(getpid(), SIGALRM);
  REQUIRE(RunUntil(io, [&] { return received.size() == 2; }));
  CHECK(received[0].meaning == SignalMeaning::kStop);
  CHECK(received[1].meaning == SignalMeaning::kAgain);
  CHECK(received[1].signal == SIGALRM);
}

TEST_CASE("signals: a HUP ignored at the start is none of the agent's signals") {
  ProcessBaseline baseline;
  CHECK((AgentSignals(baseline) & BitOf(SIGHUP)) != 0);
  baseline.ignored_signals = BitOf(SIGHUP);
  CHECK((AgentSignals(baseline) & BitOf(SIGHUP)) == 0);
}

}  // namespace
}  // namespace ddprun::launcher
