// `ddprun stop`: the user wants the whole job to end.
#include <doctest/doctest.h>

#include <string>

#include "launcher/agent/agent_core.h"
#include "tests/launcher/agent/agent_bench.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using rendezvous::Concluded;
using rendezvous::ContactLost;
using rendezvous::ContactMade;
using rendezvous::ContactRestored;
using rendezvous::Drained;
using rendezvous::StopRequested;
using rendezvous::Verdict;

constexpr int kTerm = 15;
const std::string kWho = "ddprun stop on node a";
const StopOrder kAtOnce{.how = rendezvous::StopHow::kGracefully, .reason = kWho};
const StopOrder kAfterStep{.how = rendezvous::StopHow::kAfterStep, .reason = kWho};
const StopOrder kNow{.how = rendezvous::StopHow::kNow, .reason = kWho};

// As the coordinator's machine makes it.
Concluded StopVerdict() { return {Verdict{.exit_code = 143, .reason = "stopped by " + kWho}}; }

// The end that `bench` comes to by `event`, and what stands in it.
EndJob EndBy(AgentCore& core, TimePoint now, const AgentEvent& event) {
  for (const AgentAction& action : core.Step(now, event)) {
    if (const auto* end = std::get_if<EndJob>(&action)) return *end;
  }
  FAIL("it does not end");
  return {};
}

TEST_CASE("stop order: in contact the coordinator is told, and its verdict ends the job") {
  Bench bench;
  bench.Step(AgentStarted{});
  bench.Step(ContactMade{"a:29400"});
  bench.Assign(1);
  CHECK(bench.Step(kAtOnce) == "order");
  // Until it is heard nothing else happens; said again, it is told again.
  CHECK(bench.Step(kAtOnce) == "order");
  CHECK(bench.Step(StopVerdict()) == "answer-after-step-in-vain answer ack say stop:15");
  CHECK(bench.Step(kAtOnce) == "answer");
  CHECK(bench.End(0, 143, kTerm) == "");
  CHECK(bench.End(1, 143, kTerm) == "");
  CHECK(bench.Step(WorkersGone{}) == "say end:143");
  CHECK(bench.Step(kAtOnce) == "answer");
  CHECK(bench.Answer() == "drain");
  CHECK(bench.Step(LogsDrained{}) == "exit:143");
}

TEST_CASE("stop order: who orders a stop of a job that ends by itself hears why it ends") {
  const Concluded failed{Verdict{.exit_code = 3, .reason = "rank 1 failed"}};
  Bench bench;
  bench.Step(AgentStarted{});
  bench.Step(ContactMade{"a:29400"});
  bench.Assign(1);
  SUBCASE("ordered after its verdict") {
    CHECK(bench.Step(failed) == "ack stop:15");
    CHECK(bench.Step(kAtOnce) == "answer-in-vain");
    CHECK(bench.Step(kAfterStep) == "answer-after-step-in-vain");
  }
  SUBCASE("ordered before, and heard too late") {
    CHECK(bench.Step(kAfterStep) == "order-after-step");
    CHECK(bench.Step(failed) == "answer-after-step-in-vain answer-in-vain ack stop:15");
  }
  SUBCASE("one that ends at once overtakes one that waits for the step") {
    CHECK(bench.Step(kAfterStep) == "order-after-step");
    CHECK(bench.Step(kAtOnce) == "order");
    CHECK(bench.Step(StopVerdict()) == "answer-after-step-in-vain answer ack say stop:15");
    CHECK(bench.Step(kAfterStep) == "answer-after-step-in-vain");
  }
  SUBCASE("the workers were asked, and have ended well") {
    bench.Step(StopRequested{kWho});
    CHECK(bench.Step(Concluded{Verdict{.exit_code = 0, .reason = "all succeeded"}}) ==
          "ack stop:15");
    CHECK(bench.Step(kAfterStep) == "answer-after-step");
    CHECK(bench.Step(kAtOnce) == "answer-in-vain");
  }
}

TEST_CASE("stop order: the verdict ends nodes that join, prepare, or are done with their work") {
  SUBCASE("joining") {
    Bench bench;
    bench.Step(AgentStarted{});
    CHECK(bench.Step(StopVerdict()) == "ack say end:143");
  }
  SUBCASE("preparing") {
    Bench bench;
    bench.Step(AgentStarted{});
    bench.Step(rendezvous::Assigned{Bench::AssignmentOf(1)});
    CHECK(bench.Step(StopVerdict()) == "ack say end:143");
    CHECK(bench.Step(WorkersPrepared{Bench::AssignmentOf(1)}) == "");
  }
  SUBCASE("succeeded, with helpers of the workers left") {
    Bench bench;
    bench.Run();
    bench.End(0, 0);
    CHECK(bench.End(1, 0) == "success");
    CHECK(bench.Step(StopVerdict()) == "ack say stop:15");
    CHECK(bench.Step(WorkersGone{}) == "say end:143");
  }
  SUBCASE("stopping for a failure, which is then not the cause") {
    Bench bench;
    bench.Run();
    CHECK(bench.End(0, 3) == "stop:15 failed:0");
    CHECK(bench.Step(StopVerdict()) == "ack say");
    CHECK(bench.Step(WorkersGone{}) == "say end:143");
  }
}

TEST_CASE("stop order: the grace that is told is what is left of it") {
  AgentPolicy policy;
  policy.shutdown_timeout = 30s;
  AgentCore core(policy);
  const TimePoint start{1000s};
  core.Step(start, AgentStarted{});
  core.Step(start, rendezvous::Assigned{Bench::AssignmentOf(1)});
  core.Step(start, WorkersPrepared{Bench::AssignmentOf(1)});
  core.Step(start + 1s, Drained{Round{1}, "node b left"});
  std::string said;
  for (const AgentAction& action : core.Step(start + 11s, StopVerdict())) {
    if (const auto* say = std::get_if<Say>(&action)) said += say->text;
  }
  CHECK(said == "stopped by " + kWho + "; stopping rank 0; SIGKILL comes in 20 s");
}

TEST_CASE("stop order: without contact the node stops alone, and says so") {
  Bench bench;
  bench.Step(AgentStarted{});
  SUBCASE("it never had any, and has no workers") {
    CHECK(bench.Step(kAtOnce) == "answer-alone say order leave end:143");
    CHECK(bench.Answer() == "drain");
    CHECK(bench.Step(LogsDrained{}) == "exit:143");
  }
  SUBCASE("it never had any, and prepares") {
    bench.Step(rendezvous::Assigned{Bench::AssignmentOf(1)});
    CHECK(bench.Step(kAtOnce) == "answer-alone say order leave end:143");
  }
  SUBCASE("it is lost, and workers run") {
    bench.Step(ContactMade{"a:29400"});
    bench.Assign(1);
    bench.Step(ContactLost{"timed out"});
    CHECK(bench.Step(kAtOnce) == "answer-alone say order leave stop:15");
    CHECK(bench.Step(kAtOnce) == "answer-alone");
    CHECK(bench.End(0, 143, kTerm) == "");
    CHECK(bench.Step(WorkersGone{}) == "end:143");
  }
  SUBCASE("it is lost, and workers are being stopped for a drain") {
    bench.Step(ContactMade{"a:29400"});
    bench.Assign(1);
    bench.Step(Drained{Round{1}, "node b left"});
    bench.Step(ContactLost{"timed out"});
    CHECK(bench.Step(kAtOnce) == "answer-alone say order leave");
    CHECK(bench.Step(WorkersGone{}) == "end:143");
  }
  SUBCASE("it is back") {
    bench.Step(ContactMade{"a:29400"});
    bench.Assign(1);
    bench.Step(ContactLost{"timed out"});
    bench.Step(ContactRestored{});
    CHECK(bench.Step(kAtOnce) == "order");
  }
}

TEST_CASE("stop order: contact that is lost behind an order carries it out here") {
  Bench bench;
  bench.Step(AgentStarted{});
  bench.Step(ContactMade{"a:29400"});
  bench.Assign(1);
  CHECK(bench.Step(kAtOnce) == "order");
  CHECK(bench.Step(ContactLost{"timed out"}) == "answer-alone say order leave stop:15");
  CHECK(bench.Step(kAtOnce) == "answer-alone");
  // The verdict that comes after all is the same.
  bench.Step(ContactRestored{});
  CHECK(bench.Step(StopVerdict()).find("ack") == 0);
  CHECK(bench.Step(WorkersGone{}) == "end:143");
}

TEST_CASE(
    "stop order: a coordinator's machine that is lost behind one is told of in that very step") {
  Bench bench;
  bench.Step(AgentStarted{});
  bench.Step(ContactMade{"a:29400"});
  bench.Assign(1);
  CHECK(bench.Step(StopOrder{.how = rendezvous::StopHow::kAfterStep, .reason = kWho}) ==
        "order-after-step");
  const ContactLost lost{.reason = "its machine is silent", .is_gone = true, .unanswered_for = 10s};
  CHECK(bench.Step(lost) ==
        "answer-after-step-alone order-after-step ask:" + kWho + " say stop:15");
  CHECK(bench.Pass(10min) == "");  // nothing is due that was due before
}

TEST_CASE("stop order: workers that ignore SIGTERM, and a user who will not wait") {
  Bench bench;
  bench.Step(AgentStarted{});
  bench.Step(ContactMade{"a:29400"});
  bench.Assign(1);
  bench.Step(StopVerdict());
  CHECK(bench.Step(SignalReceived{kTerm, false}) == "leave say");
  CHECK(bench.Step(SignalReceived{kTerm, true}) == "say kill");
  CHECK(bench.Step(WorkersGone{}) == Contains("end:143"));
}

TEST_CASE("stop order: --now kills the workers of every node") {
  Bench bench;
  bench.Step(AgentStarted{});
  bench.Step(ContactMade{"a:29400"});
  bench.Assign(1);
  CHECK(bench.Step(kNow) == "order-now");
  Concluded told = StopVerdict();
  told.verdict.is_kill = true;
  CHECK(bench.Step(told) == "answer-after-step-in-vain answer ack stop:15 say kill");
  CHECK(bench.Step(WorkersGone{}) == Contains("end:143"));
}

TEST_CASE("stop order: --now that crosses another end kills all the same") {
  Bench bench;
  bench.Step(AgentStarted{});
  bench.Step(ContactMade{"a:29400"});
  bench.Assign(1);
  CHECK(bench.Step(kNow) == "order-now");
  CHECK(bench.Step(StopVerdict()) == Contains("stop:15 say kill"));
}

TEST_CASE("stop order: --now kills the workers of a job that is being stopped") {
  Bench bench;
  bench.Step(AgentStarted{});
  bench.Step(ContactMade{"a:29400"});
  bench.Assign(1);
  SUBCASE("by an order") {
    bench.Step(StopVerdict());
    CHECK(bench.Step(kNow) == "say kill answer");
  }
  SUBCASE("by an order, on several nodes") {
    rendezvous::Assignment round = Bench::AssignmentOf(2);
    round.node_count = 2;
    bench.Drain(1);
    bench.Step(WorkersGone{});
    bench.Begin(round);
    bench.Step(StopVerdict());
    CHECK(bench.Step(kNow) == "say kill answer-alone");
  }
  SUBCASE("by a signal") {
    bench.Step(SignalReceived{kTerm});
    CHECK(bench.Step(kNow) == "say kill answer");
  }
  CHECK(bench.Step(WorkersGone{}) == Contains("end:143"));
}

TEST_CASE("stop order: --now with no coordinator to tell kills what this node runs") {
  Bench bench;
  bench.Step(AgentStarted{});
  bench.Step(ContactMade{"a:29400"});
  bench.Assign(1);
  bench.Step(ContactLost{"timed out", false});
  CHECK(bench.Step(kNow) == "answer-alone say order-now leave stop:15 say kill");
}

TEST_CASE("stop order: after the step workers are asked, once, on every node") {
  Bench bench;
  bench.Step(AgentStarted{});
  bench.Step(ContactMade{"a:29400"});
  bench.Assign(1);
  CHECK(bench.Step(kAfterStep) == "order-after-step");
  CHECK(bench.Step(StopRequested{kWho}) == "answer-after-step ask:" + kWho);
  CHECK(bench.Step(StopRequested{kWho}) == "");
  CHECK(bench.Step(StopAsked{"SIGUSR1"}) == "");
  CHECK(bench.Step(kAfterStep) == "answer-after-step");
  // Nobody waits any more: the order that does not wait for a step.
  CHECK(bench.Step(kAtOnce) == "order");
}

TEST_CASE("stop order: after the step, without contact, this node's workers are asked") {
  Bench bench;
  bench.Step(AgentStarted{});
  CHECK(bench.Step(kAfterStep) == "answer-after-step-alone order-after-step ask:" + kWho);
  bench.Assign(1);
  CHECK(bench.Step(kAfterStep) == "answer-after-step-alone order-after-step");
  // Once there is somebody to pass it on, that one has to say so.
  bench.Step(ContactMade{"a:29400"});
  CHECK(bench.Step(kAfterStep) == "order-after-step");
  CHECK(bench.Step(StopRequested{kWho}) == "answer-after-step");
  CHECK(bench.Step(kAfterStep) == "answer-after-step");
}

TEST_CASE("stop order: what comes when the end is known, or while leaving, changes nothing") {
  Bench bench;
  bench.Run();
  bench.Step(ContactMade{"a:29400"});
  bench.End(0, 0);
  bench.End(1, 0);
  bench.Step(WorkersGone{});
  CHECK(bench.Step(Concluded{Verdict{.reason = "all succeeded"}}) == "ack end:0");
  CHECK(bench.Step(kAtOnce) == "answer-in-vain");
  CHECK(bench.Step(kAfterStep) == "answer-after-step-in-vain");
  CHECK(bench.Step(StopRequested{kWho}) == "");
  CHECK(bench.Answer() == "drain");
  CHECK(bench.Step(LogsDrained{}) == "exit:0");
  CHECK(bench.Step(kAtOnce) == "");
}

TEST_CASE("stop order: a local failure that came first keeps its code") {
  Bench bench;
  bench.Run();
  bench.Step(ContactMade{"a:29400"});
  CHECK(bench.Step(LocalFailure{120, "disk full"}) == "say leave stop:15");
  // The other nodes go on without this one.
  CHECK(bench.Step(kAtOnce) == "answer-alone");
  CHECK(bench.Step(WorkersGone{}) == "end:120");
}

TEST_CASE("stop order: whoever stops a job does not want it queued again") {
  AgentPolicy policy;
  policy.preempt_signal = 10;
  policy.requeue_code = 99;
  Bench bench(2, policy);
  bench.Run();
  bench.Step(ContactMade{"a:29400"});
  SUBCASE("after the step: the workers save and end with 0") {
    bench.Step(StopRequested{kWho});
    bench.End(0, 0);
    bench.End(1, 0);
    bench.Step(WorkersGone{.have_read_stop = true});
    CHECK(bench.Step(Concluded{Verdict{}}) == "ack end:0");
  }
  SUBCASE("after the preempt signal, too") {
    bench.Step(StopAsked{"SIGUSR1"});
    bench.Step(StopRequested{kWho});
    bench.End(0, 0);
    bench.End(1, 0);
    bench.Step(WorkersGone{.have_read_stop = true});
    CHECK(bench.Step(Concluded{Verdict{}}) == "ack end:0");
  }
  SUBCASE("at once, where workers have read an earlier wish") {
    bench.Step(StopAsked{"SIGUSR1"});
    bench.Step(StopVerdict());
    CHECK(bench.Step(WorkersGone{.have_read_stop = true}) == "say end:143");
  }
  SUBCASE("without contact") {
    bench.Step(StopAsked{"SIGUSR1"});
    bench.Step(ContactLost{"timed out"});
    bench.Step(kAtOnce);
    CHECK(bench.Step(WorkersGone{.have_read_stop = true}) == "end:143");
  }
}

const StopRequested kMakeRoom{"node c joined", /*is_to_scale_up=*/true};

TEST_CASE("stop order: to scale up a round's workers are asked once, and those of the next anew") {
  Bench bench;
  bench.Step(AgentStarted{});
  CHECK(bench.Step(kMakeRoom) == "");  // nothing runs here
  bench.Assign(1);
  CHECK(bench.Step(kMakeRoom) == "make-room:node c joined");
  CHECK(bench.Step(kMakeRoom) == "");
  CHECK(bench.End(0, 0) == "first-success");
  CHECK(bench.End(1, 0) == "success-if-to-scale-up");
  CHECK(bench.Step(kMakeRoom) == "");  // they have ended
  bench.Step(WorkersGone{.have_read_stop = true});
  CHECK(bench.Step(rendezvous::Drained{Round{1}, "node c joined"}) == "say join");
  bench.Assign(2);
  bench.End(0, 0);
  CHECK(bench.End(1, 0) == "success");
}

TEST_CASE("stop order: a wish that the job ends counts for more than one to scale up") {
  Bench bench;
  bench.Run();
  SUBCASE("that came later") {
    CHECK(bench.Step(kMakeRoom) == "make-room:node c joined");
    CHECK(bench.Step(StopAsked{"SIGUSR1"}) == "ask:SIGUSR1");
  }
  SUBCASE("that came before") {
    CHECK(bench.Step(StopAsked{"SIGUSR1"}) == "ask:SIGUSR1");
    CHECK(bench.Step(kMakeRoom) == "");
  }
  bench.End(0, 0);
  CHECK(bench.End(1, 0) == "success-if-to-end");
}

TEST_CASE("stop order: --requeue-code is not for workers that made room") {
  AgentPolicy policy;
  policy.preempt_signal = 10;
  policy.requeue_code = 99;
  Bench bench(2, policy);
  bench.Run();
  bench.Step(kMakeRoom);
  bench.End(0, 0);
  bench.End(1, 0);
  bench.Step(WorkersGone{.have_read_stop = true});
  CHECK(bench.Step(Concluded{Verdict{}}) == "ack end:0");
}

TEST_CASE("stop order: who does not wait for a step is not answered by those who do") {
  Bench bench;
  bench.Run();
  bench.Step(ContactMade{"a:29400"});
  CHECK(bench.Step(kAfterStep) == "order-after-step");
  CHECK(bench.Step(kAtOnce) == "order");
  // The coordinator has heard the first one: whoever gave it, here or elsewhere.
  CHECK(bench.Step(StopRequested{kWho}) == "ask:" + kWho);
  CHECK(bench.Step(StopVerdict()) == "answer-after-step answer ack say stop:15");
}

TEST_CASE("stop order: the end names who ordered it, and is the user's") {
  AgentCore of_verdict({});
  of_verdict.Step(TimePoint(1000s), AgentStarted{});
  AgentCore alone({});
  alone.Step(TimePoint(1000s), AgentStarted{});
  for (const EndJob& end : {EndBy(of_verdict, TimePoint(1001s), StopVerdict()),
                            EndBy(alone, TimePoint(1001s), kAtOnce)}) {
    CHECK(end.exit_code == 143);
    CHECK(end.owner == ExitOwner::kStopped);
    CHECK(end.reason == "stopped by ddprun stop on node a");
  }
}

TEST_CASE("stop order: a worker that died of SIGTERM is no stop of the user's") {
  Bench bench;
  bench.Run();
  Verdict failed{.exit_code = 143, .reason = "rank 3 failed"};
  failed.first_failure.emplace();
  failed.first_failure->exit_code = 143;
  bench.Step(Concluded{failed});
  CHECK(bench.Step(WorkersGone{}) == "report end:143");
}

TEST_CASE(
    "agent: a stop that the coordinator may not have heard is carried out here when it is lost") {
  Bench bench(2, {.orphan_timeout = 600s});
  bench.Run();
  bench.Step(rendezvous::ContactMade{"node1:29400", false});
  using rendezvous::StopHow;
  const StopOrder after_step{StopHow::kAfterStep, "ddprun stop on node a"},
      now{StopHow::kGracefully, "ddprun stop on node a"};
  SUBCASE("at once") {
    CHECK(bench.Step(now) == "order");
    CHECK(bench.Step(after_step) == "order-after-step");
    CHECK(bench.Step(ContactLost{"timed out", false}) == "answer-alone say order leave stop:15");
    CHECK(bench.Step(WorkersGone{}) == "end:143");
  }
  SUBCASE("after a step") {
    CHECK(bench.Step(after_step) == "order-after-step");
    CHECK(bench.Step(ContactLost{"timed out", false}) ==
          "answer-after-step-alone order-after-step ask:" + kWho);
    CHECK(bench.Step(now) == "answer-alone say order leave stop:15");
  }
  SUBCASE("it was heard") {
    CHECK(bench.Step(now) == "order");
    CHECK(bench.Step(Concluded{Verdict{143, "stopped by ddprun stop on node a", {}}}) ==
          "answer-after-step-in-vain answer ack say stop:15");
    CHECK(bench.Step(ContactLost{"timed out", false}) == "");
  }
}

}  // namespace
}  // namespace ddprun::launcher
