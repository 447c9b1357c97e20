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

TEST_CASE("signals: the first stop signal stops, a second INT or TERM kills") {
  for (const int first : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    for (const int second : {SIGINT, SIGTERM}) {
      SignalClassifier classifier;
      CHECK(classifier.Classify(first, 0, At(0s)) == SignalMeaning::kStop);
      CHECK(classifier.Classify(second, 0, At(1s)) == SignalMeaning::kKillNow);
    }
  }
}

TEST_CASE("signals: further HUP and QUIT stay a stop") {
  SignalClassifier classifier;
  CHECK(classifier.Classify(SIGHUP, 0, At(0s)) == SignalMeaning::kStop);
  CHECK(classifier.Classify(SIGHUP, 7, At(1s)) == SignalMeaning::kStop);
  CHECK(classifier.Classify(SIGQUIT, 7, At(2s)) == SignalMeaning::kStop);
}

// no limit: pure
TEST_CASE("signals: one sender's signal to the process and then to its group counts once") {
  SignalClassifier classifier;
  CHECK(classifier.Classify(SIGTERM, 7, At(0ms)) == SignalMeaning::kStop);
  CHECK(classifier.Classify(SIGTERM, 7, At(1ms)) == std::nullopt);
  SUBCASE("but not from another sender") {
    CHECK(classifier.Classify(SIGTERM, 8, At(2ms)) == SignalMeaning::kKillNow);
  }
  SUBCASE("but not another signal") {
    CHECK(classifier.Classify(SIGINT, 7, At(2ms)) == SignalMeaning::kKillNow);
  }
  SUBCASE("but not later") {
    CHECK(classifier.Classify(SIGTERM, 7, At(20ms)) == SignalMeaning::kKillNow);
  }
}

TEST_CASE("signals: user signals and job control mean the same before and after a stop") {
  SignalClassifier classifier;
  for (int round = 0; round < 2; ++round) {
    CHECK(classifier.Classify(SIGUSR1, 7, At(0s)) == SignalMeaning::kRelay);
    CHECK(classifier.Classify(SIGUSR2, 7, At(0s)) == SignalMeaning::kRelay);
    CHECK(classifier.Classify(SIGTSTP, 7, At(0s)) == SignalMeaning::kSuspend);
    CHECK(classifier.Classify(SIGCONT, 7, At(0s)) == SignalMeaning::kResume);
    classifier.Classify(SIGTERM, 7, At(0s));
  }
}

TEST_CASE("signals: what the user names besides stops the job, and the others keep their meaning") {
  SignalClassifier classifier(BitOf(SIGUSR1) | BitOf(SIGTSTP) | BitOf(SIGALRM));
  CHECK(classifier.Classify(SIGUSR2, 7, At(0s)) == SignalMeaning::kRelay);
  CHECK(classifier.Classify(SIGCONT, 7, At(0s)) == SignalMeaning::kResume);
  SUBCASE("USR1") { CHECK(classifier.Classify(SIGUSR1, 7, At(1s)) == SignalMeaning::kStop); }
  SUBCASE("TSTP") { CHECK(classifier.Classify(SIGTSTP, 7, At(1s)) == SignalMeaning::kStop); }
  SUBCASE("ALRM") { CHECK(classifier.Classify(SIGALRM, 7, At(1s)) == SignalMeaning::kStop); }
  SUBCASE("TERM") { CHECK(classifier.Classify(SIGTERM, 7, At(1s)) == SignalMeaning::kStop); }
  // Slurm warns with one and again with the next; only INT and TERM are impatience.
  CHECK(classifier.Classify(SIGALRM, 8, At(2s)) == SignalMeaning::kStop);
  CHECK(classifier.Classify(SIGINT, 7, At(3s)) == SignalMeaning::kKillNow);
}

// no limit: pure
TEST_CASE("signals: --preempt_signal asks, however often it comes") {
  SignalClassifier classifier(0, SIGUSR1);
  CHECK(classifier.Classify(SIGUSR1, 7, At(0ms)) == SignalMeaning::kAsk);
  CHECK(classifier.Classify(SIGUSR1, 7, At(1ms)) == std::nullopt);
  CHECK(classifier.Classify(SIGUSR1, 7, At(1s)) == SignalMeaning::kAsk);
  CHECK(classifier.Classify(SIGUSR2, 7, At(1s)) == SignalMeaning::kRelay);
  CHECK(classifier.Classify(SIGTERM, 7, At(1s)) == SignalMeaning::kStop);
}

// no limit: pure
TEST_CASE("signals: a TERM that asks stops when it comes again, or after another stop kills") {
  SignalClassifier classifier(0, SIGTERM);
  SUBCASE("again") {
    CHECK(classifier.Classify(SIGTERM, 7, At(0ms)) == SignalMeaning::kAsk);
    CHECK(classifier.Classify(SIGTERM, 7, At(1ms)) == std::nullopt);
    CHECK(classifier.Classify(SIGTERM, 7, At(1s)) == SignalMeaning::kStop);
    CHECK(classifier.Classify(SIGTERM, 7, At(2s)) == SignalMeaning::kKillNow);
  }
  SUBCASE("after ^C") {
    CHECK(classifier.Classify(SIGINT, 0, At(0s)) == SignalMeaning::kStop);
    CHECK(classifier.Classify(SIGTERM, 7, At(1s)) == SignalMeaning::kKillNow);
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
  CHECK(received[1].meaning == SignalMeaning::kStop);
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
