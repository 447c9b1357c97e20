// When an agent checks its node, and what it does with the result.
#include <doctest/doctest.h>

#include <chrono>

#include "tests/launcher/agent/agent_bench.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using rendezvous::Health;

AgentPolicy Checked(bool is_measured = false) {
  AgentPolicy policy;
  policy.health_pause = 60s;
  policy.is_health_measured = is_measured;
  return policy;
}

HealthFound Found(uint64_t number, Health health) { return {number, {health, "line"}}; }

TEST_CASE("health: a node joins when its first check is over, and says what it found") {
  Bench bench(1, Checked());
  CHECK(bench.Step(AgentStarted{}) == "check");
  CHECK(bench.Pass(1s) == "say");  // what it waits for
  CHECK(bench.Step(Found(1, Health::kHealthy)) == "join-healthy");
  CHECK(bench.Step(Found(1, Health::kBad)) == "");  // nobody asked again
}

TEST_CASE("health: the check runs beside the stop of the workers, and costs a join no time") {
  Bench bench(1, Checked());
  bench.Step(AgentStarted{});
  bench.Step(Found(1, Health::kHealthy));
  CHECK(bench.Assign(1) == "start:1");
  CHECK(bench.Drain(1) == "stop:15 check");
  SUBCASE("it ends first") {
    CHECK(bench.Step(Found(2, Health::kBad)) == "");
    CHECK(bench.Step(WorkersGone{}) == "join-bad");
  }
  SUBCASE("the workers end first") {
    CHECK(bench.Step(WorkersGone{}) == "");
    CHECK(bench.Step(Found(2, Health::kHealthy)) == "join-healthy");
  }
  SUBCASE("the job ends meanwhile") {
    bench.Step(rendezvous::Concluded{{.exit_code = 143, .reason = "stopped by a user"}});
    CHECK(bench.Step(WorkersGone{}) == "say stop-check end:143");
  }
}

TEST_CASE("health: what measures waits for the workers' end") {
  Bench bench(1, Checked(true));
  bench.Step(AgentStarted{});
  bench.Step(Found(1, Health::kHealthy));
  bench.Assign(1);
  CHECK(bench.Drain(1) == "stop:15");
  CHECK(bench.Step(WorkersGone{}) == "check");
  CHECK(bench.Step(Found(2, Health::kHealthy)) == "join-healthy");
}

TEST_CASE("health: a node that waits is checked again, and tells only what is new") {
  Bench bench(1, Checked());
  bench.Step(AgentStarted{});
  bench.Step(Found(1, Health::kHealthy));
  CHECK(bench.Pass(59s) == "");
  CHECK(bench.Pass(1s) == "check");
  CHECK(bench.Step(Found(2, Health::kHealthy)) == "");
  CHECK(bench.Pass(60s) == "check");
  CHECK(bench.Step(Found(3, Health::kUnknown)) == "say tell-unknown");
  CHECK(bench.Pass(60s) == "check");
  SUBCASE("it gets a place: nothing runs beside its workers, and a late result is none") {
    CHECK(bench.Assign(1) == "stop-check start:1");
    CHECK(bench.Step(Found(4, Health::kBad)) == "");
    CHECK(bench.Drain(1) == "stop:15 check");
  }
  SUBCASE("it is bad: the coordinator's refusal ends it, with a code of its own") {
    CHECK(bench.Step(Found(4, Health::kBad)) == "tell-bad");
    CHECK(bench.Step(rendezvous::RendezvousFailed{
              "node a is bad", rendezvous::RendezvousFailed::Kind::kBadNode}) == "say end:119");
  }
}

TEST_CASE("health: a failure on a bad node is not the code that it ends with") {
  Bench bench(1, Checked());
  bench.Step(AgentStarted{});
  bench.Step(Found(1, Health::kHealthy));
  bench.Assign(1);
  bench.End(0, 7);
  bench.Step(WorkersGone{});
  CHECK(bench.Step(Found(2, Health::kBad)) == "join-bad");
  CHECK(bench.Step(rendezvous::RendezvousFailed{
            "node a is bad", rendezvous::RendezvousFailed::Kind::kBadNode}) == "say end:119");
}

TEST_CASE("health: without the option nothing is checked") {
  Bench bench(1);
  CHECK(bench.Step(AgentStarted{}) == "join");
  CHECK(bench.Pass(600s) == "");
}

}  // namespace
}  // namespace ddprun::launcher
