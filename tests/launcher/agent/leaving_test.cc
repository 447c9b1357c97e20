// The agent's last state: what is left of the job is ended, contact ends, the report is written,
// the logs are written out; nothing of it may hold up the exit, and every signal is a transition.
#include <doctest/doctest.h>

#include <string>

#include "tests/launcher/agent/agent_bench.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using rendezvous::Concluded;
using rendezvous::Verdict;

constexpr int kInt = 2;
constexpr int kTerm = 15;
const AgentEvent kFirst = SignalReceived{kInt};
const AgentEvent kFurther = SignalReceived{kInt, true};

TEST_CASE("leaving: the logs are written out when all else has been answered, then it exits") {
  Bench bench;
  bench.Step(AgentStarted{});
  REQUIRE(bench.Step(kFirst) == "leave end:130");
  SUBCASE("in one order") {
    CHECK(bench.Step(LeftoversGone{}) == "");
    CHECK(bench.Step(rendezvous::ContactEnded{}) == "");
    CHECK(bench.Step(ReportWritten{}) == "drain");
  }
  SUBCASE("in another") {
    CHECK(bench.Step(ReportWritten{}) == "");
    CHECK(bench.Step(rendezvous::ContactEnded{}) == "");
    CHECK(bench.Step(LeftoversGone{}) == "drain");
  }
  CHECK(bench.Step(LogsDrained{}) == "exit:130");
  CHECK(bench.core().NextDeadline() == std::nullopt);
  CHECK(bench.Step(kFurther) == "");
}

TEST_CASE("leaving: what does not answer is waited for until its deadline, and left behind") {
  Bench bench;
  bench.Step(AgentStarted{});
  bench.Step(kFirst);
  SUBCASE("the file system of the report") {
    bench.Step(LeftoversGone{});
    bench.Step(rendezvous::ContactEnded{});
    CHECK(bench.Pass(14999ms) == "");
    CHECK(bench.Pass(1ms) == "drain");
    CHECK(bench.Step(LogsDrained{}) == "exit-at-once:130");
  }
  SUBCASE("nodes that have not heard of the end, which is told") {
    bench.Step(LeftoversGone{});
    bench.Step(ReportWritten{});
    CHECK(bench.Pass(1999ms) == "");
    CHECK(bench.Pass(1ms) == "say");
    CHECK(bench.Pass(8s) == "");
    CHECK(bench.Step(rendezvous::ContactEnded{}) == "drain");
    CHECK(bench.Pass(8s) == "");
    CHECK(bench.Step(LogsDrained{}) == "exit:130");
  }
  SUBCASE("the log thread") {
    REQUIRE(bench.Answer() == "drain");
    CHECK(bench.Pass(60s) == "");
    CHECK(bench.Pass(500ms) == "exit-at-once:130");
  }
  SUBCASE("whoever reads our output") {
    REQUIRE(bench.Answer() == "drain");
    CHECK(bench.Step(LogsDrained{false}) == "exit-at-once:130");
  }
  SUBCASE("processes that do not die: their channels are cut off") {
    bench.Step(ReportWritten{});
    bench.Step(rendezvous::ContactEnded{});
    CHECK(bench.Step(LeftoversGone{false}) == "say cut-off");
    CHECK(bench.Step(LogsDrained{}) == "exit:130");
  }
}

TEST_CASE("leaving: a signal leaves half a second to each wait, a further one nothing") {
  Bench bench(1);
  REQUIRE(bench.Run() == "join start:1");
  bench.End(0, 0);
  bench.Step(WorkersGone{});
  REQUIRE(bench.Step(Concluded{Verdict{}}) == "ack end:0");
  SUBCASE("while the rest is ended") {
    CHECK(bench.Step(kFirst) == "");
    CHECK(bench.Pass(499ms) == "");
    CHECK(bench.Pass(1ms) == "cut-off");
    CHECK(bench.Pass(1s) == "exit-at-once:0");
  }
  SUBCASE("while the logs are written out") {
    REQUIRE(bench.Answer() == "drain");
    CHECK(bench.Step(kFirst) == "");
    CHECK(bench.Pass(500ms) == "exit-at-once:0");
  }
  SUBCASE("twice") {
    CHECK(bench.Step(kFirst) == "");
    CHECK(bench.Step(kFurther) == "exit-at-once:0");
  }
  SUBCASE("a closing terminal's second SIGHUP is no further one") {
    CHECK(bench.Step(SignalReceived{1}) == "");
    CHECK(bench.Step(SignalReceived{1}) == "");
    CHECK(bench.Answer() == "drain");
    CHECK(bench.Step(LogsDrained{}) == "exit:0");
  }
}

TEST_CASE(
    "leaving: whatever ends the wait for what workers left, a job that succeeded ends with 0") {
  Bench bench;
  bench.Run();
  bench.End(0, 0);
  REQUIRE(bench.End(1, 0) == "success");
  REQUIRE(bench.Step(Concluded{Verdict{}}) == "ack");
  SUBCASE("SIGTERM") { CHECK(bench.Step(SignalReceived{kTerm}) == "say stop:15"); }
  SUBCASE("^C") { CHECK(bench.Step(kFirst) == "say stop:2"); }
  SUBCASE("two of them") {
    CHECK(bench.Step(kFirst) == "say stop:2");
    CHECK(bench.Step(kFurther) == "say kill");
  }
  SUBCASE("`ddprun stop`") {
    const StopOrder order{.how = rendezvous::StopHow::kGracefully, .reason = "ddprun stop"};
    CHECK(bench.Step(order) == "say stop:15 answer");
  }
  SUBCASE("what the kernel keeps is left behind") {
    bench.Step(kFirst);
    bench.Step(kFurther);
    CHECK(bench.Step(kFurther) == "say end:0");
    return;
  }
  CHECK(bench.Step(WorkersGone{}) == "end:0");
}

TEST_CASE("leaving: before the job has succeeded, a signal ends it for a node that has") {
  Bench bench;
  bench.Run();
  bench.End(0, 0);
  REQUIRE(bench.End(1, 0) == "success");
  CHECK(bench.Step(SignalReceived{kTerm}) == "leave say stop:15");
  CHECK(bench.Step(WorkersGone{}) == "end:143");
}

TEST_CASE("leaving: any number of ^C ends with 130, whatever the workers and the driver do") {
  Bench bench;
  bench.Run();
  CHECK(bench.Step(kFirst) == "leave say stop:2");
  CHECK(bench.Step(kFurther) == "say kill");
  // Workers that the kernel keeps: the group is still theirs, so nothing is destroyed in peace.
  CHECK(bench.Step(kFurther) == "say end:130");
  SUBCASE("all is answered in time") {
    CHECK(bench.End(0, 137, 9) == "");
    CHECK(bench.Step(WorkersGone{}) == "");
    CHECK(bench.Answer() == "drain");
    CHECK(bench.Step(LogsDrained{}) == "exit-at-once:130");
  }
  SUBCASE("and still more of them") {
    CHECK(bench.Step(kFurther) == "");
    CHECK(bench.Step(kFurther) == "exit-at-once:130");
    CHECK(bench.Step(kFurther) == "");
  }
}

TEST_CASE("leaving: what the rendezvous says then changes nothing") {
  Bench bench;
  bench.Step(AgentStarted{});
  bench.Step(kFirst);
  CHECK(bench.Step(Concluded{Verdict{3, "late", {}}}) == "");
  CHECK(bench.Step(rendezvous::RendezvousFailed{"late"}) == "");
  CHECK(bench.Step(rendezvous::ContactLost{"gone", true}) == "");
  CHECK(bench.Step(rendezvous::ContactRestored{}) == "");
  CHECK(bench.Assign(1) == "");
  CHECK(bench.Drain(1) == "");
  CHECK(bench.Step(LocalFailure{120, "late"}) == "");
  CHECK(bench.Answer() == "drain");
  CHECK(bench.Step(LogsDrained{}) == "exit:130");
}

TEST_CASE("preparing: no worker starts before its files are made") {
  Bench bench;
  bench.Step(AgentStarted{});
  REQUIRE(bench.Step(rendezvous::Assigned{Bench::AssignmentOf(1)}) == "prepare:1");
  SUBCASE("a drain ends it, and a late answer starts nothing") {
    CHECK(bench.Drain(1) == "join");
    CHECK(bench.Step(WorkersPrepared{Bench::AssignmentOf(1)}) == "");
    CHECK(bench.Step(rendezvous::Assigned{Bench::AssignmentOf(2)}) == "prepare:2");
    CHECK(bench.Step(WorkersPrepared{Bench::AssignmentOf(1)}) == "");
    CHECK(bench.Step(WorkersPrepared{Bench::AssignmentOf(2)}) == "start:2");
  }
  SUBCASE("nor does a late answer of another instance's round of the same number") {
    CHECK(bench.Drain(1) == "join");
    rendezvous::Assignment other = Bench::AssignmentOf(1);
    other.instance = JobInstance{1, 2};
    CHECK(bench.Step(rendezvous::Assigned{other}) == "prepare:1");
    CHECK(bench.Step(WorkersPrepared{Bench::AssignmentOf(1)}) == "");
    CHECK(bench.Step(WorkersPrepared{other}) == "start:1");
  }
  SUBCASE("a signal ends it") { CHECK(bench.Step(kFirst) == "leave end:130"); }
  SUBCASE("a verdict ends it") {
    CHECK(bench.Step(Concluded{Verdict{3, "rank 9 failed", {}}}) == "ack report end:3");
  }
  SUBCASE("an error of this machine does") {
    CHECK(bench.Step(WorkersPrepared{Bench::AssignmentOf(1), "create folder /logs: no space"}) ==
          "say leave end:120");
  }
  SUBCASE("a file system that never answers does") {
    CHECK(bench.Pass(599s) == "");
    CHECK(bench.Pass(1s) == "say leave end:120");
  }
}

TEST_CASE("node loss: its verdict waits a second for a signal of our own") {
  const Concluded lost{Verdict{121, "node b left the job", {}}};
  Bench bench;
  bench.Run();
  SUBCASE("workers that end at once") {
    CHECK(bench.Step(lost) == "ack stop:15");
    CHECK(bench.Step(WorkersGone{}) == "");
    SUBCASE("no signal comes") {
      CHECK(bench.Pass(999ms) == "");
      CHECK(bench.Pass(1ms) == "report end:121");
    }
    SUBCASE("one comes") {
      CHECK(bench.Pass(900ms) == "");
      CHECK(bench.Step(SignalReceived{kTerm}) == "leave end:143");
    }
  }
  SUBCASE("workers that take longer") {
    CHECK(bench.Step(lost) == "ack stop:15");
    CHECK(bench.Pass(5s) == "");
    CHECK(bench.Step(WorkersGone{}) == "report end:121");
  }
  SUBCASE("workers that the drain before it has stopped") {
    CHECK(bench.Step(rendezvous::Drained{Round{1}, "node b left"}) == "say stop:15");
    CHECK(bench.Step(WorkersGone{}) == "join");
    CHECK(bench.Step(lost) == "ack");
    SUBCASE("no signal comes") { CHECK(bench.Pass(1s) == "report end:121"); }
    SUBCASE("one comes") {
      CHECK(bench.Pass(900ms) == "");
      CHECK(bench.Step(SignalReceived{kTerm}) == "leave end:143");
    }
  }
  SUBCASE("workers that have all succeeded") {
    bench.End(0, 0);
    bench.End(1, 0);
    bench.Step(WorkersGone{});
    CHECK(bench.Step(lost) == "ack");
    CHECK(bench.Pass(1s) == "report end:121");
  }
  SUBCASE("another verdict does not wait") {
    CHECK(bench.Step(Concluded{Verdict{120, "no room", {}}}) == "ack stop:15");
    CHECK(bench.Step(WorkersGone{}) == "report end:120");
  }
}

TEST_CASE("node loss: a failure before it is the cause, one in the same second a consequence") {
  std::string end;
  Bench bench;
  bench.Run();
  bench.End(1, 3);
  CHECK(bench.Step(WorkersGone{}) == "join");
  SUBCASE("before") {
    bench.Pass(1001ms);
    end = "say report end:3";
  }
  SUBCASE("a busy node heard of both at once, of its worker first") {
    bench.Pass(1000ms);
    end = "say end:121";
  }
  bench.Step(rendezvous::ContactLost{.reason = "refused", .is_gone = true});
  CHECK(bench.Pass(3s) == end);
}

TEST_CASE("node loss: with restarts left a failed wait for its return ends with 121") {
  std::string end = "say end:121";
  Bench bench;
  bench.Step(AgentStarted{});
  rendezvous::Assignment with_budget = Bench::AssignmentOf(1);
  with_budget.max_restarts = 1;
  bench.Begin(with_budget);
  bench.End(1, 3);
  CHECK(bench.Step(WorkersGone{}) == "join");
  SUBCASE("the coordinator has heard of the worker, and gives up") {
    bench.Step(rendezvous::Waiting{"1 of 2 nodes, waiting for 1 more"});
  }
  SUBCASE("the coordinator has heard of the worker, and goes later") {
    bench.Step(rendezvous::Waiting{"1 of 2 nodes, waiting for 1 more"});
    bench.Pass(60s);
    bench.Step(rendezvous::ContactLost{.reason = "refused", .is_gone = true});
  }
  SUBCASE("nobody has heard of the worker") { end = "say report end:3"; }
  SUBCASE("the coordinator went, and the worker failed of that") {
    bench.Pass(1000ms);
    bench.Step(rendezvous::ContactLost{.reason = "refused", .is_gone = true});
  }
  SUBCASE("the coordinator went after the worker had failed, which nobody answered") {
    bench.Pass(1001ms);
    bench.Step(rendezvous::ContactLost{.reason = "refused", .is_gone = true});
    end = "say report end:3";
  }
  SUBCASE("the coordinator's machine had gone before, which takes its time to be told") {
    bench.Pass(9s);
    bench.Step(rendezvous::ContactLost{.reason = "no answer", .unanswered_for = 10s});
  }
  SUBCASE("the coordinator's machine went after the worker had failed") {
    bench.Pass(11001ms);
    bench.Step(rendezvous::ContactLost{.reason = "no answer", .unanswered_for = 10s});
    end = "say report end:3";
  }
  SUBCASE("the coordinator is silent, which makes no worker fail") {
    bench.Step(rendezvous::ContactLost{.reason = "timed out"});
    end = "say report end:3";
  }
  bench.Pass(600s);
  CHECK(bench.Step(rendezvous::RendezvousFailed{"gave up after 600 s"}) == end);
}

TEST_CASE("left peer: behind a consequence, a worker's own end is reported even after our stop") {
  Bench bench(3);
  bench.Run();
  CHECK(bench.Step(Bench::EndOf(0, 1)) == "stop:15 describe:0");
  SUBCASE("it came before the first was described") {
    CHECK(bench.Step(Bench::EndOf(1, 3)) == "");
    CHECK(bench.Step(WorkersGone{}) == "");  // the round is over when all has been said
    CHECK(bench.Describe(0, 1, 1) == "failed:0 describe:1");
    CHECK(bench.Describe(1, 3) == "failed:1 join");
    SUBCASE("and it is the one that counts where nobody is left to judge") {
      bench.Step(rendezvous::ContactLost{"timed out"});
      CHECK(bench.Step(rendezvous::RendezvousFailed{"lost"}) == "say report end:3");
    }
  }
  SUBCASE("it comes later") {
    CHECK(bench.Describe(0, 1, 1) == "failed:0");
    CHECK(bench.Step(Bench::EndOf(1, 3)) == "describe:1");
    CHECK(bench.Step(Bench::EndOf(2, 143, kTerm)) == "");  // by our signal
    CHECK(bench.Describe(1, 3) == "failed:1");
    CHECK(bench.Step(WorkersGone{}) == "join");
  }
  SUBCASE("the first was no consequence: the others' ends are") {
    CHECK(bench.Describe(0, 1) == "failed:0");
    CHECK(bench.Step(Bench::EndOf(1, 3)) == "");
    CHECK(bench.Step(WorkersGone{}) == "join");
  }
}

TEST_CASE("leaving: workers are asked to stop once; the code tells of it where one has read that") {
  constexpr int kUsr1 = 10;
  AgentPolicy policy;
  policy.preempt_signal = kUsr1;
  policy.requeue_code = 99;
  Bench bench(2, policy);
  REQUIRE(bench.Run() == "join start:1");
  CHECK(bench.Step(StopAsked{"SIGUSR1"}) == "ask:SIGUSR1");
  CHECK(bench.Step(StopAsked{"SIGUSR1"}) == "");
  const Verdict success;
  bench.End(0, 0);
  bench.End(1, 0);
  SUBCASE("read") {
    bench.Step(WorkersGone{.have_read_stop = true});
    bench.Step(Concluded{success});
    CHECK(bench.Answer() == "drain");
    CHECK(bench.Step(LogsDrained{}) == "exit:99");
  }
  SUBCASE("not read") {
    bench.Step(WorkersGone{});
    bench.Step(Concluded{success});
    CHECK(bench.Answer() == "drain");
    CHECK(bench.Step(LogsDrained{}) == "exit:0");
  }
}

TEST_CASE("leaving: a node that waits for others and is asked to stop leaves to be requeued") {
  AgentPolicy policy;
  policy.preempt_signal = 10;
  SUBCASE("with a code for that") {
    policy.requeue_code = 99;
    Bench bench(2, policy);
    bench.Step(AgentStarted{});
    CHECK(bench.Step(StopAsked{"SIGUSR1"}) == "say leave end:99");
    CHECK(bench.Answer() == "drain");
    CHECK(bench.Step(LogsDrained{}) == "exit:99");
  }
  SUBCASE("without one the workers that start are asked") {
    Bench bench(2, policy);
    bench.Step(AgentStarted{});
    CHECK(bench.Step(StopAsked{"SIGUSR1"}) == "ask:SIGUSR1");
  }
  SUBCASE("a user's order is no preemption") {
    policy.requeue_code = 99;
    Bench bench(2, policy);
    bench.Step(AgentStarted{});
    CHECK(bench.Step(rendezvous::StopRequested{.reason = "ddprun stop"}) == "ask:ddprun stop");
  }
}

}  // namespace
}  // namespace ddprun::launcher
