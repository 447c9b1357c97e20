#include "launcher/cli/option_values.h"

#include <doctest/doctest.h>

#include <csignal>

namespace ddprun::launcher {
namespace {

struct Outcome {
  std::vector<int> signals;
  std::vector<std::string> warnings;
};

Outcome Of(const std::string& text) {
  Outcome outcome;
  outcome.signals = MoreStopSignals(text, outcome.warnings);
  return outcome;
}

TEST_CASE("stop signals: the default adds none, others are added once, spaces do not matter") {
  CHECK(Of(kDefaultSignalsToHandle).signals.empty());
  CHECK(Of(kDefaultSignalsToHandle).warnings.empty());
  CHECK(Of("").signals.empty());
  CHECK(Of("").warnings.empty());
  const Outcome more = Of("SIGTERM, SIGUSR1,SIGUSR2 ,SIGUSR1,SIGIO,SIGPOLL,SIGALRM");
  CHECK(more.signals == std::vector<int>{SIGUSR1, SIGUSR2, SIGPOLL, SIGALRM});
  CHECK(more.warnings.empty());
}

TEST_CASE("stop signals: an unknown name is a warning with the one that was meant") {
  struct Row {
    std::string text;
    std::string advice;
  };
  const std::vector<Row> rows = {
      {"USR1", "'USR1' is ignored; did you mean SIGUSR1?"},
      {"sigusr2", "'sigusr2' is ignored; did you mean SIGUSR2?"},
      {"SIGUSER1", "'SIGUSER1' is ignored; did you mean SIGUSR1?"},
      {"SOMETHING", "'SOMETHING' is ignored; expected names such as SIGUSR1,SIGUSR2"},
      {"KILL", "'KILL' is ignored; expected names such as SIGUSR1,SIGUSR2"},
      {"10", "'10' is ignored; expected names"},
      {"a\nb", "'a\\nb' is ignored"},
  };
  for (const Row& row : rows) {
    const Outcome outcome = Of("SIGTERM," + row.text + ",SIGUSR2");
    CAPTURE(row.text);
    CHECK(outcome.signals == std::vector<int>{SIGUSR2});
    REQUIRE(outcome.warnings.size() == 1);
    CAPTURE(outcome.warnings[0]);
    CHECK(outcome.warnings[0].find("unknown signal " + row.advice) == 0);
  }
}

TEST_CASE("stop signals: what cannot be handled, or is ours, is a warning") {
  for (const std::string name : {"SIGKILL", "SIGSTOP", "SIGSEGV", "SIGCHLD", "SIGCLD", "SIGCONT",
                                 "SIGPIPE", "SIGABRT", "SIGIOT"}) {
    const Outcome outcome = Of(name);
    CAPTURE(name);
    CHECK(outcome.signals.empty());
    REQUIRE(outcome.warnings.size() == 1);
    CHECK(outcome.warnings[0] == name + " is ignored: ddprun cannot stop the job on it");
  }
}

TEST_CASE("stop signals: --preempt_signal is a name with or without SIG, or a number") {
  for (const char* text : {"USR1", "SIGUSR1", "10"}) CHECK(*ParsePreemptSignal(text) == SIGUSR1);
  CHECK(*ParsePreemptSignal("TERM") == SIGTERM);
  CHECK(*ParsePreemptSignal("SIGHUP") == SIGHUP);
  for (const char* text : {"", "SIG", "USR", "usr1", "KILL", "9", "INT", "SEGV", "CHLD", "40"}) {
    CAPTURE(text);
    const auto parsed = ParsePreemptSignal(text);
    REQUIRE_FALSE(parsed.ok());
    CHECK(std::string(parsed.status().message()).find("expected a signal ") == 0);
  }
}

TEST_CASE("stop signals: what contradicts --preempt_signal is refused") {
  const auto error_of = [](const GivenOptions& given) {
    return std::string(BuildLaunchConfig(given, {}).status().message());
  };
  const GivenValue usr1{"USR1", "--preempt-signal"};
  CHECK(error_of({{"preempt_signal", usr1}, {"requeue_code", {"0", "--requeue-code"}}}) == "");
  CHECK(error_of({{"preempt_signal", {"TERM", "PET_PREEMPT_SIGNAL"}}}) == "");
  CHECK(error_of({{"preempt_signal", {"KILL", "--preempt-signal"}}})
            .find("--preempt-signal 'KILL': expected a signal ") == 0);
  CHECK(error_of({{"preempt_signal", usr1},
                  {"signals_to_handle", {"SIGUSR1", "--signals-to-handle"}}}) ==
        "--preempt-signal names a signal of --signals-to-handle 'SIGUSR1': expected one that "
        "either asks the workers to stop or stops the job");
  CHECK(error_of({{"requeue_code", {"99", "--requeue-code"}}}) ==
        "--requeue-code '99' without --preempt-signal: expected the signal that asks for a "
        "graceful stop, too");
  CHECK(error_of({{"preempt_signal", usr1}, {"requeue_code", {"256", "--requeue-code"}}}) ==
        "--requeue-code '256': expected a number from 0 to 255");
}

}  // namespace
}  // namespace ddprun::launcher
