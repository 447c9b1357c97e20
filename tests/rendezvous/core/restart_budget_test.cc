#include "rendezvous/core/restart_budget.h"

#include <doctest/doctest.h>

#include <chrono>
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
  CountFailure(limits, first, 0, spent);
  CHECK(WhyNoRestart(limits, spent, first) == "");
  CountFailure(limits, other, 1, spent);
  CHECK(WhyNoRestart(limits, spent, other) == "");
  CountFailure(limits, first, 2, spent);
  CHECK(WhyNoRestart(limits, spent, first) == "");
  CountFailure(limits, first, 3, spent);
  CHECK(WhyNoRestart(limits, spent, first) ==
        "the same failure 2 times in succession, each after step 12: another restart would most "
        "likely end so, too (--max-same-failures=1)");
  CHECK(WhyNoRestart(RestartLimits{}, spent, first) == "");
}

FailureReport After(Duration progress) {
  FailureReport report = Failure("boom", 12);
  report.progress = std::chrono::duration_cast<std::chrono::milliseconds>(progress);
  return report;
}

TEST_CASE("restart budget: waits double up to a limit, and begin anew after long progress") {
  const RestartLimits limits{.backoff = std::chrono::seconds(40)};
  RestartsSpent spent;
  for (const int seconds : {0, 40, 80, 160, 300, 300}) {
    CountFailure(limits, After(std::chrono::minutes(9)), 0, spent);
    CHECK(WaitBeforeRestart(limits, spent) == std::chrono::seconds(seconds));
  }
  CountFailure(limits, After(std::chrono::minutes(10)), 0, spent);
  CHECK(WaitBeforeRestart(limits, spent) == Duration{0});
  CountFailure(limits, After(Duration{0}), 0, spent);
  CHECK(WaitBeforeRestart(limits, spent) == std::chrono::seconds(40));
  // Progress that a loss has ended counts as well.
  const RestartLimits lossy{.max_node_losses = 5, .backoff = std::chrono::seconds(40)};
  CountLoss(lossy, false, std::chrono::minutes(10), 0, spent);
  CountFailure(lossy, After(Duration{0}), 0, spent);
  CHECK(WaitBeforeRestart(lossy, spent) == Duration{0});
  CountFailure(lossy, After(Duration{0}), 0, spent);
  CHECK(WaitBeforeRestart(lossy, spent) == std::chrono::seconds(40));
  // A longer first wait is what the user wants.
  const RestartLimits longer{.backoff = std::chrono::seconds(400)};
  CHECK(WaitBeforeRestart(longer, spent) == std::chrono::seconds(400));
  CountFailure(longer, After(Duration{0}), 0, spent);
  CHECK(WaitBeforeRestart(longer, spent) == std::chrono::seconds(400));
  CHECK(WaitBeforeRestart(RestartLimits{}, spent) == Duration{0});
  spent.failures_in_row = 1 << 24;
  CHECK(WaitBeforeRestart(limits, spent) == std::chrono::minutes(5));
}

TEST_CASE("restart budget: losses and preemptions count apart, each where it is limited") {
  const RestartLimits limits{.max_preemptions = 1};
  RestartsSpent spent;
  for (int i = 0; i < 3; ++i) CountLoss(limits, false, std::chrono::seconds(1), 0, spent);
  CHECK(spent.node_losses == 0);
  CHECK(spent.progress == std::chrono::seconds(3));
  CHECK(WhyNoLossMore(limits, false, spent) == "");
  CountLoss(limits, true, std::chrono::seconds(1), 0, spent);
  CHECK(spent.progress == std::chrono::seconds(0));
  CHECK(WhyNoLossMore(limits, true, spent) == "");
  CountLoss(limits, true, std::chrono::seconds(1), 0, spent);
  CHECK(WhyNoLossMore(limits, true, spent).find("no preemption is left of 1") == 0);
}

TEST_CASE("restart budget: after the period all is given back, and the count goes on") {
  const RestartLimits limits{.max_node_losses = 1, .budget_period = std::chrono::hours(1)};
  RestartsSpent spent;
  CountLoss(limits, false, std::chrono::minutes(59), 2, spent);
  CHECK(spent.node_losses == 1);
  CountLoss(limits, false, std::chrono::minutes(60), 2, spent);
  CHECK(spent.node_losses == 1);
  CHECK(spent.given_back == 2);
  // Progress counts from the last charge on.
  CountLoss(limits, true, std::chrono::minutes(59), 2, spent);
  CountFailure(limits, After(std::chrono::minutes(1)), 2, spent);
  CHECK(spent.node_losses == 0);
  CHECK(spent.given_back == 2);
  CountFailure(limits, After(std::chrono::minutes(59)), 3, spent);
  CHECK(spent.given_back == 2);
  CountFailure(limits, After(std::chrono::minutes(60)), 4, spent);
  CHECK(spent.given_back == 4);
}

TEST_CASE("restart budget: without steps so long a time says that the job got somewhere") {
  const RestartLimits limits{.max_same_failure = 2, .budget_period = std::chrono::hours(1)};
  RestartsSpent spent;
  FailureReport report = After(std::chrono::hours(1));
  CountFailure(limits, report, 0, spent);
  CountFailure(limits, report, 1, spent);
  CHECK(spent.same_failures == 2);
  report.step.reset();
  CountFailure(limits, report, 2, spent);
  CountFailure(limits, report, 3, spent);
  CHECK(spent.same_failures == 1);
  report.progress = std::chrono::minutes(59);
  CountFailure(limits, report, 4, spent);
  CHECK(spent.same_failures == 2);
}

}  // namespace
}  // namespace ddprun::rendezvous
