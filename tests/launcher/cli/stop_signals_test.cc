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

}  // namespace
}  // namespace ddprun::launcher
