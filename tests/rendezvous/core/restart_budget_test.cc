#include "rendezvous/core/restart_budget.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun::rendezvous {
namespace {

FailureReport Failure(const std::string& message, int64_t step) {
  FailureReport report;
  report.message = "exit code 1";
  report.step = step;
  report.error = WorkerError{.message = message};
  return report;
}

TEST_CASE("restart budget: a text without its numbers") {
  CHECK(WithoutNumbers("") == "");
  CHECK(WithoutNumbers("no number") == "no number");
  CHECK(WithoutNumbers("rank 3: 0x7f00ab took 1.5 s, 1,309 in all.") ==
        "rank #: # took # s, # in all.");
  CHECK(WithoutNumbers("0x 0xg 12, 3.") == "# #g #, #.");
  CHECK(WithoutNumbers("node-3a") == "node-#a");
}

TEST_CASE("restart budget: the same failure is the same on every rank, at every address") {
  FailureReport a = Failure("ValueError: rank 3 has a bad batch at 0x7f1c\nmore", 12);
  FailureReport b = Failure("ValueError: rank 0 has a bad batch at 0x7fff\nother", 12);
  b.rank = 7;
  b.host = "elsewhere";
  b.pid = 42;
  b.stderr_tail = "[rank7]: lines\n";
  CHECK(FingerprintOf(a) == FingerprintOf(b));
}

TEST_CASE("restart budget: another step, code, signal or error is another failure") {
  const FailureReport base = Failure("ValueError: boom", 12);
  FailureReport other = base;
  other.step = 13;
  CHECK(FingerprintOf(other) != FingerprintOf(base));
  other.step.reset();
  CHECK(FingerprintOf(other) != FingerprintOf(base));
  other = base;
  other.exit_code = 2;
  CHECK(FingerprintOf(other) != FingerprintOf(base));
  other = base;
  other.signal = 9;
  CHECK(FingerprintOf(other) != FingerprintOf(base));
  other = base;
  other.is_hang = true;
  CHECK(FingerprintOf(other) != FingerprintOf(base));
  other = base;
  other.error->message = "KeyError: boom";
  CHECK(FingerprintOf(other) != FingerprintOf(base));
}

TEST_CASE("restart budget: without an error file the last line of stderr is the error") {
  FailureReport a;
  a.message = "exit code 1";
  a.stderr_tail = "loading 3\nRuntimeError: boom on rank 1\r\n \n";
  FailureReport b = a;
  b.stderr_tail = "warning\nRuntimeError: boom on rank 2\n";
  CHECK(FingerprintOf(a) == FingerprintOf(b));
  b.stderr_tail = "RuntimeError: boom on rank 2\nMemoryError\n";
  CHECK(FingerprintOf(a) != FingerprintOf(b));
  b.stderr_tail = "";
  CHECK(FingerprintOf(a) != FingerprintOf(b));
}

TEST_CASE("restart budget: only failures in succession count as the same") {
  const RestartLimits limits{.max_same_failure = 2};
  const FailureReport first = Failure("boom", 12);
  const FailureReport other = Failure("bang", 12);
  RestartsSpent spent;
  CountFailure(first, spent);
  CHECK(WhyNoRestart(limits, spent, first) == "");
  CountFailure(other, spent);
  CHECK(WhyNoRestart(limits, spent, other) == "");
  CountFailure(first, spent);
  CHECK(WhyNoRestart(limits, spent, first) == "");
  CountFailure(first, spent);
  CHECK(WhyNoRestart(limits, spent, first) ==
        "the same failure 2 times in succession, each after step 12: another restart would most "
        "likely end so, too (--max_same_failure=2)");
  CHECK(WhyNoRestart(RestartLimits{}, spent, first) == "");
}

}  // namespace
}  // namespace ddprun::rendezvous
