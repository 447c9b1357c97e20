// The checker finds what is planted: an invariant that cannot fail checks nothing.
#include "tests/rendezvous/core/invariants.h"

#include <doctest/doctest.h>

#include "tests/rendezvous/core/builders.h"

namespace ddprun::rendezvous {
namespace {

using namespace testing;  // NOLINT: builders

struct Sealed {
  Sealed() : policy(TestPolicy(2, 2)), machine(policy, FirstStart(), At(0s)), checker(policy) {
    REQUIRE(Check(Join(policy, "a", 1)).empty());
  }

  // Steps with the join of the second node and hands its actions to the checker, changed.
  std::vector<std::string> SealWith(void (*change)(std::vector<Action>&)) {
    const Event join = Join(policy, "b", 2);
    std::vector<Action> actions = machine.Step(At(0s), join);
    change(actions);
    return checker.AfterStep(machine, join, actions);
  }
  std::vector<std::string> Check(const Event& event) {
    const std::vector<Action> actions = machine.Step(At(0s), event);
    return checker.AfterStep(machine, event, actions);
  }

  const Policy policy;
  RendezvousMachine machine;
  InvariantChecker checker;
};

Assignment& SecondOf(std::vector<Action>& actions) {
  return std::get<Assign>(actions.back()).assignment;
}

bool Names(const std::vector<std::string>& broken, const std::string& invariant) {
  for (const std::string& breach : broken) {
    if (breach.rfind(invariant, 0) == 0) return true;
  }
  return false;
}

TEST_CASE("invariants: a sound round breaks none") {
  CHECK(Sealed().SealWith([](std::vector<Action>&) {}).empty());
}

TEST_CASE("invariants: overlapping ranks are found") {
  CHECK(Names(Sealed().SealWith([](std::vector<Action>& a) { SecondOf(a).first_rank = 1; }), "S1"));
}

TEST_CASE("invariants: two masters, or a node that is not told, are found") {
  CHECK(
      Names(Sealed().SealWith([](std::vector<Action>& a) { SecondOf(a).master_port = 1; }), "S2"));
  CHECK(Names(Sealed().SealWith([](std::vector<Action>& a) { a.pop_back(); }), "S2"));
}

TEST_CASE("invariants: a round below the minimum is found") {
  CHECK(Names(Sealed().SealWith([](std::vector<Action>& a) { a.pop_back(); }), "S7"));
}

TEST_CASE("invariants: a round that goes back is found") {
  Sealed job;
  REQUIRE(job.SealWith([](std::vector<Action>&) {}).empty());
  Assign old;
  old.session = SessionId{1};
  old.assignment.instance = kTestJob;
  old.assignment.epoch = Epoch{1};
  old.assignment.round = Round{0};
  CHECK(Names(job.checker.AfterStep(job.machine, TimePassed{}, {old}), "S3"));
}

TEST_CASE("invariants: a new round while workers of the old one live is found") {
  Sealed job;
  REQUIRE(job.SealWith([](std::vector<Action>&) {}).empty());
  Assign next;
  next.session = SessionId{1};
  next.assignment.instance = kTestJob;
  next.assignment.epoch = Epoch{1};
  next.assignment.round = Round{2};
  CHECK(Names(job.checker.AfterStep(job.machine, TimePassed{}, {next}), "S5"));
}

TEST_CASE("invariants: success without reports, and a second verdict, are found") {
  Sealed job;
  REQUIRE(job.SealWith([](std::vector<Action>&) {}).empty());
  Conclude good{.session = SessionId{1}, .epoch = Epoch{1}, .round = Round{1}, .verdict = {}};
  CHECK(Names(job.checker.AfterStep(job.machine, TimePassed{}, {good}), "S11"));
  good.verdict.exit_code = 9;
  CHECK(Names(job.checker.AfterStep(job.machine, TimePassed{}, {good}), "S10"));
}

TEST_CASE("invariants: a first cause that nobody reported is found") {
  Sealed job;
  REQUIRE(job.SealWith([](std::vector<Action>&) {}).empty());
  Conclude bad{.session = SessionId{1}, .epoch = Epoch{1}, .round = Round{1}, .verdict = {}};
  bad.verdict.exit_code = 5;
  bad.verdict.first_failure = FailureReport{};
  CHECK(Names(job.checker.AfterStep(job.machine, TimePassed{}, {bad}), "S12"));
}

TEST_CASE("invariants: a verdict that a crash would lose, or that a stranger hears, is found") {
  Sealed job;
  REQUIRE(job.SealWith([](std::vector<Action>&) {}).empty());
  const Conclude end{.session = SessionId{9}, .epoch = Epoch{1}, .round = Round{1}, .verdict = {}};
  CHECK(Names(job.checker.AfterStep(job.machine, TimePassed{}, {end}), "S10: a verdict is told"));
  const Event stranger = Join(job.policy, "z", 9);
  const std::vector<std::string> broken = job.checker.AfterStep(job.machine, stranger, {end});
  CHECK(Names(broken, "S10: node z is told the end of another job"));
}

}  // namespace
}  // namespace ddprun::rendezvous
