#include "launcher/agent/agent_core.h"

#include <doctest/doctest.h>

#include "tests/launcher/agent/agent_bench.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using rendezvous::Assigned;
using rendezvous::Assignment;
using rendezvous::Concluded;
using rendezvous::ContactLost;
using rendezvous::ContactRestored;
using rendezvous::Drained;
using rendezvous::RendezvousFailed;
using rendezvous::Verdict;

constexpr int kAbrt = 6;
constexpr int kInt = 2;
constexpr int kKill = 9;
constexpr int kTerm = 15;

Concluded Failure(int code) { return Concluded{Verdict{code, "rank 1 failed", {}}}; }

TEST_CASE("agent: success is acknowledged and ends with 0 when the verdict says so") {
  Bench bench;
  bench.Run();
  CHECK(bench.End(0, 0) == "first-success");
  CHECK(bench.End(1, 0) == "success");
  CHECK(bench.Step(WorkersGone{}) == "");
  CHECK(bench.Step(Concluded{Verdict{}}) == "ack end:0");
}

TEST_CASE("agent: after the job's success it waits for what its workers left, and stops nothing") {
  Bench bench;
  bench.Run();
  bench.End(0, 0);
  bench.End(1, 0);
  CHECK(bench.Step(Concluded{Verdict{}}) == "ack");
  CHECK(bench.Step(ContactLost{.reason = "closed"}) == "");
  CHECK(bench.Pass(30min) == "say");
  CHECK(bench.Step(WorkersGone{}) == "end:0");
}

TEST_CASE("agent: what its workers left hears of a signal and of a stop after the job's success") {
  for (const bool is_signal : {false, true}) {
    CAPTURE(is_signal);
    Bench bench;
    bench.Run();
    bench.End(0, 0);
    bench.End(1, 0);
    bench.Step(Concluded{Verdict{}});
    if (is_signal) {
      CHECK(bench.Step(SignalReceived{.signal = kTerm}) == "say stop:15");
    } else {
      CHECK(bench.Step(StopOrder{rendezvous::StopHow::kGracefully, "ddprun stop"}) ==
            "say stop:15 answer");
    }
    CHECK(bench.Step(WorkersGone{}) == "end:0");
  }
}

TEST_CASE("agent: an order to stop that crosses the job's success ends what its workers left") {
  for (const rendezvous::StopHow how :
       {rendezvous::StopHow::kGracefully, rendezvous::StopHow::kNow}) {
    Bench bench;
    bench.Run();
    bench.Step(rendezvous::ContactMade{});
    bench.End(0, 0);
    bench.End(1, 0);
    bench.Step(StopOrder{how, "ddprun stop"});
    const std::string line = bench.Step(Concluded{Verdict{}});
    CHECK(line == (how == rendezvous::StopHow::kNow
                       ? "answer-after-step answer ack stop:15 say kill"
                       : "answer-after-step answer ack stop:15"));
  }
}

TEST_CASE("agent: who leaves processes behind that do not die leaves once") {
  Bench bench;
  bench.Run();
  CHECK(bench.Step(Failure(3)) == "ack stop:15");
  const SignalReceived kill{.signal = kTerm, .is_kill = true};
  CHECK(bench.Step(kill) == "say kill");
  CHECK(bench.Step(kill) == "say end:143");
  CHECK(bench.Step(WorkersGone{}) == "");
}

TEST_CASE("agent: a failed worker stops the others, and the node joins the next round") {
  Bench bench;
  bench.Run();
  CHECK(bench.End(1, 3) == "stop:15 failed:1");
  CHECK(bench.Drain(1) == "");
  CHECK(bench.End(0, 143, kTerm) == "");
  CHECK(bench.Step(WorkersGone{}) == "join");
  CHECK(bench.Assign(2) == "start:2");
}

// What the agent does when local rank 0 of three has aborted and the end of `ending` is under way.
struct Abort {
  explicit Abort(std::set<int> ending) : bench(3) {
    bench.Run();
    CHECK(bench.End(0, 134, kAbrt) == "look");
    found = bench.Step(EndingFound{Bench::AssignmentOf(1), std::move(ending)});
  }
  Bench bench;
  std::string found;
};

TEST_CASE("agent: a worker that aborts alone is the cause, and the others are stopped at once") {
  Abort abort({});
  CHECK(abort.found == "stop:15 describe:0");
  CHECK(abort.bench.Describe(0, 134) == "failed:0");
}

TEST_CASE("agent: the failure of a peer whose end was under way comes before an abort") {
  Abort abort({2});
  CHECK(abort.found == "");
  CHECK(abort.bench.Pass(999ms) == "");
  CHECK(abort.bench.Step(Bench::EndOf(2, 1)) == "stop:15 describe:2 describe:0");
  CHECK(abort.bench.Describe(2, 1) == "failed:2");
  CHECK(abort.bench.Describe(0, 134) == "failed:0");
}

TEST_CASE("agent: aborts are dated behind the failure that was under way, however it ends") {
  for (const int signal : {0, kAbrt, kKill}) {
    CAPTURE(signal);
    AgentPolicy policy;
    policy.local_world_size = 3;
    AgentCore core(policy);
    core.Step(TimePoint{}, AgentStarted{});
    core.Step(TimePoint{}, Assigned{Bench::AssignmentOf(1)});
    core.Step(TimePoint{}, WorkersPrepared{Bench::AssignmentOf(1)});
    core.Step(TimePoint{}, Bench::EndOf(0, 134, kAbrt));
    core.Step(TimePoint{}, EndingFound{Bench::AssignmentOf(1), {1}});
    WorkerEnd cause = Bench::EndOf(1, 1, signal);
    cause.at = TimePoint{200ms};
    std::vector<TimePoint> dates;
    for (const AgentAction& action : core.Step(cause.at, cause)) {
      if (const auto* told = std::get_if<DescribeFailure>(&action)) dates.push_back(told->end.at);
    }
    REQUIRE(dates.size() == 2);
    CHECK(dates[0] == cause.at);
    CHECK(dates[1] > cause.at);
  }
}

TEST_CASE("agent: a failure that comes of an abort does not take its place") {
  Abort abort({2});
  // Rank 1 has raised since, as its peer was gone; rank 2 is the one whose end was under way.
  CHECK(abort.bench.Step(Bench::EndOf(1, 1)) == "stop:15 describe:1 describe:0");
  CHECK(abort.bench.Describe(0, 134) == "failed:0");
}

TEST_CASE("agent: who does not end within its time leaves the abort as the cause") {
  Abort abort({1, 2});
  CHECK(abort.bench.Pass(1s) == "stop:15 describe:0");
}

TEST_CASE("agent: a peer that ends well explains no abort") {
  Abort abort({2});
  CHECK(abort.bench.End(2, 0) == "first-success stop:15 describe:0");
}

WorkerEnd LostEnd(int local_rank) {
  WorkerEnd end = Bench::EndOf(local_rank, 1);
  end.tells_lost_peer = true;
  return end;
}

// When the failures that the actions ask about are dated, in their order.
std::vector<TimePoint> DatesIn(const std::vector<AgentAction>& actions) {
  std::vector<TimePoint> dates;
  for (const AgentAction& action : actions) {
    if (const auto* told = std::get_if<DescribeFailure>(&action)) dates.push_back(told->end.at);
  }
  return dates;
}

TEST_CASE("agent: who says that it lost a peer has an end that is under way waited for") {
  Bench bench(3);
  bench.Run();
  CHECK(bench.Step(LostEnd(0)) == "look");
  CHECK(bench.Step(EndingFound{Bench::AssignmentOf(1), {2}}) == "");
  CHECK(bench.Pass(999ms) == "");
  CHECK(bench.Step(Bench::EndOf(2, 1)) == "stop:15 describe:2 describe:0");
}

TEST_CASE("agent: who says that it lost a peer is the cause where no other ends within 0.3 s") {
  Bench bench(3);
  bench.Run();
  CHECK(bench.Step(LostEnd(0)) == "look");
  CHECK(bench.Step(EndingFound{Bench::AssignmentOf(1), {}}) == "");
  CHECK(bench.Pass(299ms) == "");
  CHECK(bench.Pass(1ms) == "stop:15 describe:0");
}

TEST_CASE("agent: who ends without a word is dated before those that say that they lost a peer") {
  for (const int signal : {0, kKill}) {
    CAPTURE(signal);
    Bench bench(3);
    bench.Run();
    bench.Step(LostEnd(0));
    bench.Step(EndingFound{Bench::AssignmentOf(1), {}});
    WorkerEnd cause = Bench::EndOf(2, signal == 0 ? 7 : 137, signal);
    cause.at = bench.now() + 100ms;
    const std::vector<TimePoint> dates = DatesIn(bench.core().Step(cause.at, cause));
    REQUIRE(dates.size() == 2);
    CHECK(dates[0] == cause.at);
    CHECK(dates[1] > cause.at);
  }
}

TEST_CASE("agent: where all say that they lost a peer the first is the cause, at once") {
  Bench bench(2);
  bench.Run();
  CHECK(bench.Step(LostEnd(1)) == "look");
  CHECK(bench.Step(LostEnd(0)) == "stop:15 describe:0 describe:1");
}

// Of the first report among the actions.
std::optional<rendezvous::FailureReport> ReportIn(const std::vector<AgentAction>& actions) {
  for (const AgentAction& action : actions) {
    if (const auto* told = std::get_if<ReportFailure>(&action)) return told->report;
  }
  return std::nullopt;
}

// What the agent of three workers does when a rank of another node has aborted and the end of
// `ending` is under way.
struct AbortElsewhere {
  explicit AbortElsewhere(std::set<int> ending) : bench(3) {
    bench.Run();
    CHECK(bench.Step(Drained{Round{1}, "", true}) == "look");
    found = bench.Step(EndingFound{Bench::AssignmentOf(1), std::move(ending)});
  }
  Bench bench;
  std::string found;
};

TEST_CASE("agent: a rank of another node aborts, and no end is under way here") {
  CHECK(AbortElsewhere({}).found == "stop:15");
}

TEST_CASE("agent: a rank of another node aborts, and an end that is under way here is the cause") {
  AbortElsewhere abort({2});
  CHECK(abort.found == "");
  CHECK(abort.bench.Pass(999ms) == "");
  CHECK(abort.bench.End(1, 1) == "");  // of a lost connection
  CHECK(abort.bench.Step(Bench::EndOf(2, 1)) == "stop:15 describe:2");
  FailureDescribed described{Bench::EndOf(2, 1), Bench::AssignmentOf(1), {}};
  described.report.local_rank = 2;
  const auto report = ReportIn(abort.bench.core().Step(abort.bench.now(), described));
  REQUIRE(report);
  CHECK(report->has_own_cause);
}

TEST_CASE("agent: what ended before it was looked at is reported, and others may still end") {
  Bench bench(3);
  bench.Run();
  CHECK(bench.Step(Drained{Round{1}, "", true}) == "look");
  CHECK(bench.Step(Bench::EndOf(1, 137, kKill)) == "describe:1");
  CHECK(bench.Describe(1, 137) == "failed:1");
  CHECK(bench.Step(EndingFound{Bench::AssignmentOf(1), {2}}) == "");
  CHECK(bench.Step(Bench::EndOf(2, 1)) == "stop:15 describe:2");
}

TEST_CASE("agent: what a handler of our stop's signal raises has no cause of its own") {
  Bench bench(3);
  bench.Run();
  CHECK(bench.Step(Bench::EndOf(0, 1)) == "stop:15 describe:0");
  CHECK(bench.Describe(0, 1, 5) == "failed:0");  // it blames a peer, so other ends count
  for (const bool was_told : {false, true}) {
    const int local_rank = was_told ? 1 : 2;
    WorkerEnd end = Bench::EndOf(local_rank, 1);
    end.was_told_to_stop = was_told;
    CHECK(bench.Step(end) == "describe:" + std::to_string(local_rank));
    FailureDescribed described{end, Bench::AssignmentOf(1), {}};
    described.report.local_rank = local_rank;
    described.report.has_own_cause = true;
    const auto report = ReportIn(bench.core().Step(bench.now(), described));
    REQUIRE(report);
    CHECK(report->has_own_cause == !was_told);
  }
}

TEST_CASE("agent: who waits for an end tells of the grace that is left then") {
  Bench bench(3);
  bench.Run();
  CHECK(bench.Step(Drained{Round{1}, "rank 7 failed", true}) == "say look");
  CHECK(bench.Step(EndingFound{Bench::AssignmentOf(1), {2}}) == "");
  CHECK(bench.Pass(1s) == "stop:15");
  std::string said;
  const TimePoint at = bench.now() + 1s;
  for (const AgentAction& action : bench.core().Step(at, AgentTimePassed{})) {
    if (const auto* say = std::get_if<Say>(&action)) said = say->text;
  }
  CHECK(said == testing::Contains("29 s left"));
}

TEST_CASE("agent: an end that takes longer than a second is not waited for") {
  AbortElsewhere abort({1, 2});
  CHECK(abort.bench.Pass(1s) == "stop:15");
  CHECK(abort.bench.Step(Bench::EndOf(2, 1)) == "");
}

TEST_CASE(
    "agent: ranks abort on two nodes, and the end that is under way here is waited for once") {
  Abort abort({2});
  CHECK(abort.bench.Step(Drained{Round{1}, "", true}) == "");
  CHECK(abort.bench.Step(Bench::EndOf(2, 1)) == "stop:15 describe:2 describe:0");
}

TEST_CASE("agent: a failure elsewhere that needs no other cause stops the workers at once") {
  Bench bench(3);
  bench.Run();
  CHECK(bench.Step(Drained{Round{1}, "", false}) == "stop:15");
}

TEST_CASE("agent: all abort before the answer has come, and the first is the cause") {
  Bench bench(3);
  bench.Run();
  CHECK(bench.End(1, 134, kAbrt) == "look");
  CHECK(bench.End(0, 134, kAbrt) == "");
  CHECK(bench.Step(Bench::EndOf(2, 134, kAbrt)) == "stop:15 describe:2 describe:1 describe:0");
}

TEST_CASE("agent: without an answer an abort is judged in time") {
  Bench bench(2);
  bench.Run();
  CHECK(bench.End(1, 134, kAbrt) == "look");
  CHECK(bench.Pass(1s) == "stop:15 describe:1");
}

TEST_CASE("agent: the only worker's abort needs no look") {
  Bench bench(1);
  bench.Run();
  CHECK(bench.End(0, 134, kAbrt) == "stop:15 failed:0");
}

TEST_CASE("agent: a reason that comes when the workers are gone is told all the same, once") {
  Bench bench;
  bench.Step(AgentStarted{});
  Assignment with_budget;
  with_budget.epoch = Epoch{7};
  with_budget.round = Round{1};
  with_budget.max_restarts = 1;
  CHECK(bench.Begin(with_budget) == "start:1");
  bench.End(1, 3);
  CHECK(bench.Step(WorkersGone{}) == "join");
  const Drained drained{Round{1}, "rank 1 on node a failed: exit code 3"};
  CHECK(bench.Step(drained) == "say");
  CHECK(bench.Step(drained) == "");
  CHECK(bench.Assign(2) == "start:2");
}

TEST_CASE("agent: no worker starts while one of an earlier round lives") {
  Bench bench;
  bench.Run();
  bench.Drain(1);
  CHECK(bench.Assign(2) == "");
  CHECK(bench.Step(WorkersGone{}) == "join");
  CHECK(bench.Assign(2) == "start:2");
}

TEST_CASE("agent: without budget it ends with the code of the verdict, after its own workers") {
  Bench bench;
  bench.Run();
  CHECK(bench.Step(Failure(137)) == "ack stop:15");
  CHECK(bench.End(0, 143, kTerm) == "");
  CHECK(bench.Step(WorkersGone{}) == "report end:137");
}

TEST_CASE("agent: the verdict may come while the node waits for the next round") {
  Bench bench;
  bench.Run();
  bench.End(1, 3);
  CHECK(bench.Step(WorkersGone{}) == "join");
  CHECK(bench.Step(Failure(3)) == "ack report end:3");
}

TEST_CASE(
    "agent: the verdict is due after a round that has no restart left, and never before one") {
  Bench bench;
  CHECK_FALSE(bench.core().is_verdict_due());
  rendezvous::Assignment round = Bench::AssignmentOf(1);
  round.max_restarts = 1;
  bench.Step(AgentStarted{});
  bench.Begin(round);
  CHECK_FALSE(bench.core().is_verdict_due());
  bench.Drain(1);
  bench.Step(WorkersGone{});
  round.round = Round{2};
  round.restart_count = 1;
  bench.Begin(round);
  CHECK(bench.core().is_verdict_due());
}

TEST_CASE("agent: a finished node restarts with the rest") {
  Bench bench;
  bench.Run();
  bench.End(0, 0);
  bench.End(1, 0);
  bench.Step(WorkersGone{});
  CHECK(bench.Drain(1) == "join");
  CHECK(bench.Assign(2) == "start:2");
  CHECK(bench.End(0, 0) == "first-success");
}

TEST_CASE("agent: a failure that is not the end is told, and so is the restart") {
  Bench bench;
  bench.Run();
  bench.End(1, 3);
  Assignment next;
  next.epoch = Epoch{7};
  next.round = Round{2};
  next.restart_count = next.max_restarts = 1;
  SUBCASE("the last failure is left to the report") {
    CHECK(bench.Step(Drained{Round{1}, "rank 1 failed"}) == "");
  }
  SUBCASE("another node hears why it stops") {
    bench.Step(WorkersGone{});
    CHECK(bench.Begin(next) == "say start:2");
    CHECK(bench.Step(Drained{Round{2}, "rank 7 failed"}) == "say stop:15");
  }
}

TEST_CASE("agent: a hang of an older round, judged late, stops nothing") {
  Bench bench;
  bench.Run(2);
  CHECK(bench.Step(HangJudged{.round = Round{1}}) == "");
  CHECK(bench.Step(HangJudged{.round = Round{2}}) == Contains("stop:15"));
}

TEST_CASE("agent: a drain of an older round stops nothing") {
  Bench bench;
  bench.Run(2);
  CHECK(bench.Drain(1) == "");
}

TEST_CASE("agent: an assignment that is not newer starts nothing") {
  Bench bench;
  bench.Run(2);
  bench.Drain(2);
  bench.Step(WorkersGone{});
  CHECK(bench.Assign(2) == "");
  CHECK(bench.Assign(1) == "");
  CHECK(bench.Assign(3) == "start:3");
}

TEST_CASE("agent: a signal in each state leaves the job and ends with 128 + n") {
  SUBCASE("joining") {
    Bench bench;
    bench.Step(AgentStarted{});
    CHECK(bench.Step(SignalReceived{kTerm}) == "leave end:143");
  }
  SUBCASE("running") {
    Bench bench;
    bench.Run();
    CHECK(bench.Step(SignalReceived{kInt}) == "leave say stop:2");
    CHECK(bench.End(0, 130, kInt) == "");
    CHECK(bench.Step(WorkersGone{}) == "end:130");
  }
  SUBCASE("running, twice") {
    Bench bench;
    bench.Run();
    bench.Step(SignalReceived{kInt});
    CHECK(bench.Step(SignalReceived{kInt, true}) == "say kill");
    CHECK(bench.Step(WorkersGone{}) == "end:130");
  }
  SUBCASE("stopping for a new round") {
    Bench bench;
    bench.Run();
    bench.Drain(1);
    CHECK(bench.Step(SignalReceived{kTerm}) == "leave say");
    CHECK(bench.Step(SignalReceived{kTerm}) == "");
    CHECK(bench.Step(WorkersGone{}) == "end:143");
  }
  SUBCASE("waiting for the verdict") {
    Bench bench(1);
    bench.Run();
    bench.End(0, 0);
    bench.Step(WorkersGone{});
    CHECK(bench.Step(SignalReceived{kTerm}) == "leave end:143");
  }
  SUBCASE("stopping after a failure that ends the job, which is told all the same") {
    Bench bench;
    bench.Run();
    bench.End(1, 9);
    Concluded failure = Failure(9);
    failure.verdict.first_failure.emplace();
    bench.Step(failure);
    CHECK(bench.Step(SignalReceived{kInt}) == "leave say");
    CHECK(bench.Step(WorkersGone{}) == "report end:130");
  }
}

TEST_CASE("agent: a worker that dies of a stop signal is judged 250 ms later") {
  Bench bench;
  bench.Run();
  CHECK(bench.End(0, 143, kTerm) == "");
  SUBCASE("the agent gets the signal too: a stop") {
    CHECK(bench.Pass(100ms) == "");
    CHECK(bench.Step(SignalReceived{kTerm}) == "leave say stop:15");
    CHECK(bench.Pass(1s) == "");
  }
  SUBCASE("it does not: a failure") {
    CHECK(bench.Pass(249ms) == "");
    CHECK(bench.Told(bench.Pass(1ms), 0, 143) == "stop:15 failed:0");
  }
  SUBCASE("the round is drained meanwhile: reported, for the coordinator to date") {
    CHECK(bench.Pass(100ms) == "");
    CHECK(bench.Told(bench.Drain(1), 0, 143) == "stop:15 failed:0");
  }
}

TEST_CASE("agent: the only worker died of a stop signal and everything is gone") {
  Bench bench(1);
  bench.Run();
  CHECK(bench.End(0, 143, kTerm) == "");
  CHECK(bench.Step(WorkersGone{}) == "");
  CHECK(bench.Told(bench.Pass(250ms), 0, 143) == "failed:0 join");
}

TEST_CASE("agent: ends after our own stop are consequences") {
  Bench bench(3);
  bench.Run();
  bench.Drain(1);
  CHECK(bench.End(0, 1) == "");
  CHECK(bench.End(1, 0) == "");
}

TEST_CASE("agent: a further signal kills, and one more ends the wait for what does not die") {
  Bench bench;
  bench.Run();
  CHECK(bench.Step(SignalReceived{kTerm}) == "leave say stop:15");
  CHECK(bench.Step(SignalReceived{1}) == "");  // a closing terminal's second SIGHUP
  CHECK(bench.Step(SignalReceived{kTerm, true}) == "say kill");
  CHECK(bench.Step(SignalReceived{kTerm, true}) == "say end:143");
}

TEST_CASE("agent: SIGKILL of a worker is a failure at once") {
  Bench bench;
  bench.Run();
  CHECK(bench.End(1, 137, kKill) == "stop:15 failed:1");
}

TEST_CASE("agent: a failure that the coordinator cannot hear of yet is told here at once") {
  Bench bench(2, {.orphan_timeout = 600s});
  bench.Run();
  CHECK(bench.Step(ContactLost{"timed out", false}) == "");
  CHECK(bench.End(0, 3) == "stop:15 failed:0 say");
}

// Loses a coordinator that lives in a member, and waits until it counts as gone.
void LoseCoordinator(Bench& bench) {
  bench.Step(ContactLost{"connection reset", false});
  bench.Pass(1s);
  CHECK(bench.Step(ContactLost{"connection refused", true}) == "");
  CHECK(bench.Pass(2999ms) == "");
  CHECK(bench.Pass(1ms) == "say stop:15");
}

TEST_CASE("agent: a coordinator whose port refuses is gone, and its ranks with it") {
  Bench bench;
  bench.Step(AgentStarted{});
  Assignment with_budget;
  with_budget.epoch = Epoch{7};
  with_budget.round = Round{1};
  with_budget.max_restarts = 1;
  CHECK(bench.Begin(with_budget) == "start:1");
  LoseCoordinator(bench);
  CHECK(bench.Step(WorkersGone{}) == "join");
  SUBCASE("it is back") { CHECK(bench.Assign(2) == "start:2"); }
  SUBCASE("it stays away") {
    CHECK(bench.Step(RendezvousFailed{"no coordinator within 600 s"}) == "say end:121");
  }
}

TEST_CASE("agent: a coordinator whose machine answers nothing is gone at once, and its ranks") {
  Bench bench;
  bench.Run();
  bench.Step(ContactLost{.reason = "timed out"});
  bench.Pass(1s);
  const std::string reason = "its machine has answered neither data nor connections for 10 s";
  SUBCASE("it lives in a member") {
    CHECK(bench.Step(ContactLost{.reason = reason, .unanswered_for = 10s}) == "say stop:15");
    CHECK(bench.Step(WorkersGone{}) == "end:121");
  }
  SUBCASE("it answers again before anybody has acted") {
    bench.Step(ContactLost{.reason = "refused", .is_gone = true});
    bench.Step(ContactLost{.reason = "no answer within 5 s"});
    CHECK(bench.Pass(3s) == "");
  }
}

TEST_CASE("agent: without restarts a coordinator that is gone ends the job") {
  Bench bench;
  bench.Run();
  LoseCoordinator(bench);
  CHECK(bench.Step(WorkersGone{}) == "end:121");
}

TEST_CASE("agent: nor does a failure of its own let it wait for a node that died with it") {
  Bench bench;
  bench.Run();
  bench.Step(ContactLost{.reason = "refused", .is_gone = true});
  bench.End(1, 3);
  CHECK(bench.Step(WorkersGone{}) == "join");
  const rendezvous::ContactMade ours{"node1:29400", true};
  SUBCASE("the port is ours now") { CHECK(bench.Step(ours) == "say end:121"); }
  SUBCASE("nobody answers") { CHECK(bench.Pass(3s) == "say end:121"); }
  SUBCASE("it answers again") {
    bench.Step(rendezvous::ContactRestored{});
    CHECK(bench.Pass(3s) == "");
  }
}

TEST_CASE("agent: a spare takes the job of a dead coordinator over") {
  Bench bench;
  bench.Step(AgentStarted{});
  bench.Step(ContactLost{.reason = "refused", .is_gone = true});
  CHECK(bench.Step(rendezvous::ContactMade{"node1:29400", true}) == "");
  CHECK(bench.Pass(3s) == "");
}

TEST_CASE("agent: trouble on the way to the next round does not hide why the last one ended") {
  Bench bench;
  bench.Run();
  bench.End(1, 3);
  CHECK(bench.Step(WorkersGone{}) == "join");
  CHECK(bench.Step(LocalFailure{120, "store: start a thread"}) == "say leave report end:3");
}

TEST_CASE("agent: a failed rendezvous ends with its code") {
  Bench bench;
  bench.Step(AgentStarted{});
  CHECK(bench.Step(RendezvousFailed{"no coordinator at 10.0.0.1:29400"}) == "say end:121");
}

TEST_CASE(
    "agent: with its own failure unanswered a failed rendezvous ends with the worker's code") {
  Bench bench;
  bench.Run();
  bench.End(1, 9);
  bench.Step(WorkersGone{});
  bench.Step(ContactLost{"timed out", false});
  CHECK(bench.Step(RendezvousFailed{"lost"}) == "say report end:9");
}

TEST_CASE("agent: a local failure stops the workers and ends with 120") {
  Bench bench;
  bench.Run();
  CHECK(bench.Step(LocalFailure{120, "disk full"}) == "say leave stop:15");
  CHECK(bench.Step(WorkersGone{}) == "end:120");
  CHECK(bench.Step(AgentTimePassed{}) == "");
}

TEST_CASE("agent: a coordinator apart from all nodes stops nobody when its port refuses") {
  Bench bench(2, {.orphan_timeout = 600s});
  bench.Step(AgentStarted{});
  Assignment apart;
  apart.epoch = Epoch{7};
  apart.round = Round{1};
  apart.coordinator_is_member = false;
  bench.Begin(apart);
  bench.Step(ContactLost{"connection refused", true});
  CHECK(bench.Pass(599s) == "say");
  CHECK(bench.Pass(1s) == "say stop:15");
}

}  // namespace
}  // namespace ddprun::launcher
