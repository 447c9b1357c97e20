// What the machine says of the job to who asks, and what of a stop no transcript shows.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "rendezvous/core/rendezvous_machine.h"
#include "rendezvous/core/text.h"
#include "tests/rendezvous/core/builders.h"
#include "tests/rendezvous/core/invariants.h"
#include "tests/support/contains.h"

namespace ddprun::rendezvous {
namespace {

using namespace testing;  // NOLINT: builders

// A machine whose every step is held against the invariants.
class Job {
 public:
  explicit Job(const Policy& policy)
      : policy_(policy), checker_(policy), machine_(policy, FirstStart(), At(0s)) {}

  std::vector<Action> Step(Duration at, const Event& event) {
    std::vector<Action> actions = machine_.Step(At(at), event);
    for (const std::string& breach : checker_.AfterStep(machine_, event, actions)) {
      FAIL_CHECK(breach);
    }
    return actions;
  }
  std::vector<Action> Join(Duration at, const std::string& name, uint64_t session) {
    return Step(at, testing::Join(policy_, name, session));
  }
  std::vector<Action> Stop(Duration at, uint64_t session) {
    return Step(at, StopOrdered{Stamp{SessionId{session}, {}, {}, {}}, StopHow::kGracefully,
                                "ddprun stop"});
  }
  const RendezvousMachine& machine() const { return machine_; }

 private:
  const Policy policy_;
  InvariantChecker checker_;
  RendezvousMachine machine_;
};

Stamp InRound(uint64_t session) { return {SessionId{session}, Epoch{1}, Round{1}, kTestJob}; }

TEST_CASE("machine: a stop names no failure, also not the one that was about to be charged") {
  Policy policy = TestPolicy(2, 2);
  policy.max_restarts = 3;
  Job job(policy);
  job.Join(0s, "a", 1);
  job.Join(0s, "b", 2);
  WorkersFailed failed{.stamp = InRound(1), .report = {}, .age = 0s};
  failed.report.rank = 0;
  CHECK(Only<Drain>(job.Step(1s, failed)).size() == 2);
  job.Stop(1s, 2);
  const auto told = Only<Conclude>(job.Step(1s, Recorded{}));
  REQUIRE(told.size() == 2);
  CHECK(told[0].verdict.exit_code == 143);
  CHECK(!told[0].verdict.first_failure);
}

TEST_CASE("machine: questions and answers show that a node lives, and say nothing else") {
  Job job(TestPolicy(1, 1));
  job.Join(0s, "a", 1);
  for (Duration at = 1s; at < 60s; at += 1s) {
    const bool is_question = at.count() % 2 == 0;
    const Event event =
        is_question ? Event(QuestionAsked{InRound(1), {}}) : Event(AnswerGiven{InRound(1), 1, ""});
    CHECK(job.Step(at, event).empty());
    CHECK(job.Step(at, TimePassed{}).empty());
  }
  // Not of a session without a node: one that looks on.
  CHECK(job.Step(60s, QuestionAsked{Stamp{SessionId{77}, {}, {}, {}}, {}}).empty());
}

TEST_CASE("machine: the places are the nodes of the job, those of broken sessions without one") {
  Job job(TestPolicy(2, 3));
  CHECK(job.machine().Places().empty());
  job.Join(0s, "a", 1);
  NodeJoined nameless = testing::Join(TestPolicy(2, 3), "b", 2);
  nameless.node.host = "";
  job.Step(0s, nameless);
  job.Step(1s, SessionBroken{SessionId{1}, true});
  const auto places = job.machine().Places();
  REQUIRE(places.size() == 2);
  CHECK(places[0].node == NodeId{"a"});
  CHECK(places[0].host == "a");
  CHECK(!places[0].session);
  CHECK(places[1].host == "b");  // its id, where no host is known
  CHECK(places[1].session == SessionId{2});
  job.Step(1s, NodeLeft{InRound(2), "chance"});
  CHECK(job.machine().Places().size() == 1);
}

TEST_CASE("machine: the facts follow the job from forming to its end") {
  Policy policy = TestPolicy(2, 3);
  policy.max_restarts = 2;
  policy.last_call = 30s;
  Job job(policy);
  const JobFacts none = job.machine().Facts(At(0s));
  CHECK(none.run_id == "job1");
  CHECK(none.phase == "forming");
  CHECK(none.round == Round{});
  CHECK(none.nodes_here == 0);

  job.Join(0s, "a", 1);
  const JobFacts alone = job.machine().Facts(At(1s));
  CHECK(alone.waiting_for == "1 node (min 2, max 3), waiting for 1 more");
  CHECK(alone.deadline == At(600s));
  CHECK(alone.nodes_here == 1);
  CHECK(alone.min_nodes == 2);
  CHECK(alone.max_nodes == 3);
  CHECK(alone.max_restarts == 2);

  job.Join(1s, "b", 2);
  // Asked late, as while the coordinator was busy: no time is left, and none is negative.
  CHECK(job.machine().Facts(At(1000s)).waiting_for ==
        "2 nodes (min 2, max 3), last call for 0 s more");
  job.Join(2s, "c", 3);
  const JobFacts running = job.machine().Facts(At(2s));
  CHECK(running.phase == "running");
  CHECK(running.waiting_for == "");
  CHECK(!running.deadline);
  CHECK(running.round == Round{1});
  CHECK(running.node_count == 3);
  CHECK(running.world_size == 6);

  WorkersFailed failed{.stamp = InRound(1), .report = {}, .age = 0s};
  failed.report.host = "a";
  job.Step(3s, failed);
  const JobFacts stopping = job.machine().Facts(At(3s));
  CHECK(stopping.phase == "stopping");
  CHECK(stopping.waiting_for.find("round 1 is being stopped") == 0);

  job.Stop(4s, 2);
  CHECK(job.machine().Facts(At(4s)).phase == "ended");
}

TEST_CASE("machine: the facts of a job that a lost node has ended name the loss") {
  Policy policy = TestPolicy(2, 2);
  policy.max_restarts = 0;
  Job job(policy);
  job.Join(0s, "a", 1);
  job.Join(0s, "b", 2);
  CHECK(job.machine().Facts(At(1s)).gone == "");
  job.Step(1s, NodeLeft{InRound(2), "chance"});
  const JobFacts facts = job.machine().Facts(At(1s));
  CHECK(facts.phase == "ended");
  CHECK(facts.gone == Contains("(--max-restarts=0)"));
}

TEST_CASE("machine: a node that does not come back to a restarted coordinator is missed") {
  const Policy policy = TestPolicy(2, 2);
  Beginning beginning = FirstStart();
  beginning.epoch = Epoch{2};
  beginning.is_remembered = true;
  RendezvousMachine machine(policy, beginning, At(0s));
  NodeJoined back = testing::Join(policy, "a", 1);
  back.stamp = InRound(1);
  back.held = Assignment{.instance = kTestJob, .epoch = Epoch{1}, .round = Round{1}};
  back.held->coordinator_is_member = false;
  back.held->node_count = 2;
  back.held->world_size = 4;
  for (const Refuse& refusal : Only<Refuse>(machine.Step(At(10s), back))) FAIL(refusal.message);
  const JobFacts soon = machine.Facts(At(13s));
  CHECK(soon.phase == "running");
  CHECK(soon.waiting_for == "the coordinator was restarted: 1 of the 2 nodes of round 1 is back");
  CHECK(soon.gone == "");
  const JobFacts late = machine.Facts(At(14s));
  CHECK(late.phase == "running");
  CHECK(late.gone ==
        "1 of the 2 nodes of round 1, node rank 1, has not come back to the restarted coordinator");
}

TEST_CASE("machine: a coordinator that knows no policy yet has facts, too") {
  const RendezvousMachine machine(std::nullopt, FirstStart(), At(0s));
  const JobFacts facts = machine.Facts(At(0s));
  CHECK(facts.phase == "forming");
  CHECK(facts.run_id == "");
  CHECK(!facts.deadline);
}

TEST_CASE("text: questions, answers and stops read as lines") {
  const Stamp stamp = InRound(2);
  CHECK(RenderEvent(QuestionAsked{stamp, {.id = 3, .to = NodeId{"b"}, .body = "x"}}) ==
        "question session=2 stamp=1.1 id=3 to=b");
  CHECK(RenderEvent(AnswerGiven{stamp, 3, "four"}) == "answer session=2 stamp=1.1 id=3 bytes=4");
  CHECK(RenderEvent(StopOrdered{stamp, StopHow::kAfterStep, "x"}) ==
        "stop session=2 stamp=1.1 after_step \"x\"");
  CHECK(RenderAction(AskNode{SessionId{2}, 3, "x"}) == "ask id=3");
  CHECK(RenderAction(TellToStop{SessionId{2}, "x"}) == "stop_after_step \"x\"");
  GiveAnswers given{.session = SessionId{2}, .id = 3, .answers = {{}}, .is_last = false};
  CHECK(RenderAction(given) == "answers id=3 nodes=1 more");
  given.is_last = true;
  CHECK(RenderAction(given) == "answers id=3 nodes=1 silent=0");
  CHECK(TargetOf(given) == SessionId{2});
}

}  // namespace
}  // namespace ddprun::rendezvous
