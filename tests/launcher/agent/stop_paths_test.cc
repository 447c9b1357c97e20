// Every path on which the agent stops its workers gives them --shutdown-timeout.
#include <doctest/doctest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/agent_core.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using namespace ddprun::rendezvous;

constexpr Duration kGrace = 7s;
constexpr int kTerm = 15;
constexpr int kUsr1 = 10;

// An agent of two workers in round 1, of a coordinator that is a member of the job.
class RunningAgent {
 public:
  RunningAgent() : core_(PolicyOfTest()) {
    Step(AgentStarted{});
    Assignment assignment;
    assignment.epoch = Epoch{7};
    assignment.round = Round{1};
    assignment.max_restarts = 1;
    assignment.coordinator_is_member = true;
    Step(Assigned{assignment});
    Step(WorkersPrepared{assignment});
  }

  void Step(const AgentEvent& event) {
    for (const AgentAction& action : core_.Step(now_, event)) {
      if (const auto* stop = std::get_if<StopWorkers>(&action)) stops_.push_back(*stop);
    }
  }
  void End(int local_rank, int exit_code, int signal = 0) {
    Step(WorkerEnd{.local_rank = local_rank, .exit_code = exit_code, .signal = signal, .at = now_});
  }
  void Pass(Duration duration) {
    now_ += duration;
    Step(AgentTimePassed{});
  }
  const std::vector<StopWorkers>& stops() const { return stops_; }

 private:
  static AgentPolicy PolicyOfTest() {
    AgentPolicy policy;
    policy.local_world_size = 2;
    policy.shutdown_timeout = kGrace;
    policy.more_stop_signals = {kUsr1};
    return policy;
  }

  AgentCore core_;
  TimePoint now_{1000s};
  std::vector<StopWorkers> stops_;
};

TEST_CASE("stop paths: each gives the workers --shutdown_timeout, and the signal it should") {
  struct Row {
    std::string path;
    std::function<void(RunningAgent&)> take;
    int signal;
  };
  const std::vector<Row> rows = {
      {"a failure, then a restart", [](RunningAgent& agent) { agent.End(0, 3); }, kTerm},
      {"a drain: another node failed or left",
       [](RunningAgent& agent) {
         agent.Step(Drained{Round{1}, "node b left"});
       },
       kTerm},
      {"the verdict of a failed job",
       [](RunningAgent& agent) {
         agent.Step(Concluded{Verdict{3, "rank 9 failed", {}}});
       },
       kTerm},
      {"SIGINT", [](RunningAgent& agent) { agent.Step(SignalReceived{2}); }, 2},
      {"a signal of --signals-to-handle",
       [](RunningAgent& agent) { agent.Step(SignalReceived{kUsr1}); }, kUsr1},
      {"a local failure",
       [](RunningAgent& agent) {
         agent.Step(LocalFailure{120, "disk full"});
       },
       kTerm},
      {"the rendezvous failed",
       [](RunningAgent& agent) { agent.Step(RendezvousFailed{"refused"}); }, kTerm},
      {"a worker died of a stop signal",
       [](RunningAgent& agent) {
         agent.End(0, 143, kTerm);
         agent.Pass(1s);
       },
       kTerm},
      {"the coordinator is silent",
       [](RunningAgent& agent) {
         agent.Step(ContactLost{});
         agent.Pass(601s);
       },
       kTerm},
      {"the coordinator is gone",
       [](RunningAgent& agent) {
         agent.Step(ContactLost{.is_gone = true});
         agent.Pass(4s);
       },
       kTerm},
      {"helpers of workers that succeeded, at the exit barrier's end",
       [](RunningAgent& agent) {
         agent.End(0, 0);
         agent.End(1, 0);
         agent.Step(ContactLost{});
         agent.Pass(301s);
       },
       kTerm},
  };
  for (const Row& row : rows) {
    RunningAgent agent;
    row.take(agent);
    CAPTURE(row.path);
    REQUIRE(agent.stops().size() == 1);
    CHECK(agent.stops()[0].grace == kGrace);
    CHECK(agent.stops()[0].signal == row.signal);
  }
}

TEST_CASE("stop paths: a worker that dies of a signal of --signals_to_handle is judged later") {
  RunningAgent agent;
  agent.End(0, 128 + kUsr1, kUsr1);
  CHECK(agent.stops().empty());
  agent.Step(SignalReceived{kUsr1});
  REQUIRE(agent.stops().size() == 1);
  CHECK(agent.stops()[0].signal == kUsr1);
  RunningAgent other;
  other.End(0, 128 + 12, 12);
  CHECK(other.stops().size() == 1);
}

}  // namespace
}  // namespace ddprun::launcher
