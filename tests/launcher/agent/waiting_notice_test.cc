// What the user is told of a wait for a place in the round, and of a stop by a signal.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "launcher/agent/agent_core.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using testing::Contains;

using namespace std::chrono_literals;
using rendezvous::Waiting;

constexpr TimePoint kStart{};

// An agent that has joined, and what it says.
class Bench {
 public:
  Bench() { At(0ms, AgentStarted{}); }
  std::string At(Duration since_start, const AgentEvent& event) {
    std::string text;
    for (const AgentAction& action : core_.Step(kStart + since_start, event)) {
      if (const Say* say = std::get_if<Say>(&action)) text += say->text;
    }
    return text;
  }
  std::string PassTo(Duration since_start) { return At(since_start, AgentTimePassed{}); }
  std::string Assign(Duration since_start, int nodes = 2) {
    rendezvous::Assignment assignment;
    assignment.epoch = Epoch{1};
    assignment.round = Round{++rounds_};
    assignment.node_count = nodes;
    assignment.first_rank = 4;
    assignment.world_size = 2 * nodes;
    assignment.note = std::exchange(note, "");
    assignment.coordinator_is_member = coordinator_is_member;
    assignment.max_restarts = max_restarts;
    assignment.coordinator_node = "n1";
    assignment_ = assignment;
    const std::string text = At(since_start, rendezvous::Assigned{assignment});
    return text + At(since_start, WorkersPrepared{assignment});
  }
  // A worker that exits with 7, and what is found out about that.
  std::string FailWorker(Duration since_start, int local_rank) {
    const WorkerEnd end{.local_rank = local_rank, .exit_code = 7};
    const rendezvous::FailureReport report{.rank = assignment_.first_rank + local_rank,
                                           .exit_code = 7};
    const std::string text = At(since_start, end);
    return text + At(since_start, FailureDescribed{end, assignment_, report});
  }
  // The round is stopped without a word, and the agent joins again.
  void EndRound(Duration since_start) {
    At(since_start, rendezvous::Drained{Round{rounds_}, ""});
    At(since_start, WorkersGone{});
  }
  std::optional<TimePoint> next() const { return core_.NextDeadline(); }
  std::string note;  // of the next assignment
  int max_restarts = 0;
  bool coordinator_is_member = true;

 private:
  AgentCore core_{AgentPolicy{.local_world_size = 3, .max_nodes = 2}};
  rendezvous::Assignment assignment_;  // the last one
  uint64_t rounds_ = 0;
};

TEST_CASE("waiting: one that is over soon is not told") {
  Bench bench;
  CHECK(bench.At(0ms, Waiting{"1 of 3 nodes"}) == "");
  CHECK(bench.PassTo(400ms) == "");
  CHECK(bench.Assign(400ms) == "");
  CHECK(bench.next() == std::nullopt);
}

TEST_CASE("waiting: a signal that ends it says so, and for what this node was waiting") {
  struct Row {
    std::string reason;
    std::string text;
  };
  const std::vector<Row> rows = {
      {"1 of 2 nodes, waiting for 1 more", ", which was waiting for 1 more"},
      {"waiting before restart 2 (--restart-backoff)",
       ", which was waiting before restart 2 (--restart-backoff)"},
      {"standing by as a spare", " (standing by as a spare)"}};
  for (const Row& row : rows) {
    Bench bench;
    bench.At(0ms, Waiting{row.reason});
    CHECK(bench.At(1ms, SignalReceived{15}) == "SIGTERM: leaving this job" + row.text);
    CHECK(bench.At(2ms, SignalReceived{15}) == "");
  }
  Bench bench;
  CHECK(bench.At(0ms, SignalReceived{2}) == "");
}

TEST_CASE("stopping: the first line says what grace is left and what ends it sooner") {
  struct Row {
    SignalReceived signal;
    std::string text;
  };
  const std::string kills = "stopping ranks 4-6; SIGKILL comes in 30 s; ";
  const std::string how = "SIGQUIT or `ddprun stop --now` kills them now";
  const std::vector<Row> rows = {
      {{.signal = 2, .is_of_terminal = true}, "SIGINT: " + kills + "Ctrl-C again kills them now"},
      {{.signal = 2}, "SIGINT: " + kills + how},
      {{.signal = 15}, "SIGTERM: " + kills + how},
      {{.signal = 1, .is_of_terminal = true}, "SIGHUP: " + kills + how},
      {{.signal = 3}, "SIGQUIT: " + kills + "`ddprun stop --now` kills them now"}};
  for (const Row& row : rows) {
    Bench bench;
    bench.Assign(0ms);
    CHECK(bench.At(1ms, row.signal) == row.text);
    CHECK(bench.At(2ms, SignalReceived{2, true}) == "SIGINT: killing ranks 4-6 now");
  }
}

TEST_CASE("stopping: an order that is passed on says nothing, one that is given anew is answered") {
  Bench bench;
  bench.Assign(0ms);
  CHECK(bench.At(0ms, SignalReceived{15}) == Contains("SIGTERM: stopping ranks 4-6; "));
  const SignalReceived again{.signal = 15, .is_again = true};
  CHECK(bench.At(3ms, again) == "");
  CHECK(bench.At(999ms, again) == "");
  CHECK(bench.At(5s, again) ==
        "SIGTERM: still stopping ranks 4-6; SIGKILL comes in 25 s; one more kills them now");
  CHECK(bench.At(5s, again) == "");
}

TEST_CASE("stopping: only ranks that live are named, and the time that is left of the grace") {
  Bench bench;
  bench.Assign(0ms);
  bench.At(1ms, WorkerEnd{.local_rank = 1, .exit_code = 3});  // the others are stopped for it
  SUBCASE("two") {
    CHECK(bench.At(10s, SignalReceived{2}) ==
          "SIGINT: stopping ranks 4, 6; SIGKILL comes in 21 s; SIGQUIT or `ddprun stop --now` "
          "kills them now");
  }
  SUBCASE("one") {
    bench.At(1s, WorkerEnd{.local_rank = 2, .exit_code = 143, .signal = 15});
    CHECK(bench.At(10s, SignalReceived{2}) ==
          "SIGINT: stopping rank 4; SIGKILL comes in 21 s; SIGQUIT or `ddprun stop --now` kills "
          "it now");
  }
  SUBCASE("none, but what they left") {
    for (const int local_rank : {0, 2}) bench.At(1s, WorkerEnd{.local_rank = local_rank});
    CHECK(bench.At(31s, SignalReceived{2}) ==
          "SIGINT: stopping what the workers left; SIGKILL comes in 0 s; SIGQUIT or `ddprun "
          "stop --now` kills them now");
    CHECK(bench.At(32s, SignalReceived{2, true}) == "SIGINT: killing what the workers left now");
  }
}

TEST_CASE("stopping: workers that let the report of a failure wait are named, once") {
  Bench bench;
  bench.Assign(0ms);
  CHECK(bench.FailWorker(1s, 0) == "");
  CHECK(bench.next() == kStart + 3s);
  bench.At(2s, WorkerEnd{.local_rank = 2, .was_told_to_stop = true});
  CHECK(bench.PassTo(3s) == "rank 4 failed: exit code 7; stopping rank 5, 28 s left");
  CHECK(bench.next() == std::nullopt);

  Bench quick;
  quick.Assign(0ms);
  quick.FailWorker(1s, 0);
  quick.At(2s, WorkersGone{});
  quick.At(2s, rendezvous::Concluded{{7, "rank 4 failed"}});
  CHECK(quick.PassTo(3s) == "");
}

TEST_CASE("waiting: what an assignment says of its round is told, however short the wait was") {
  Bench bench;
  CHECK(bench.Assign(0ms, 2) == "");
  bench.EndRound(1s);
  bench.note = "node b is lost; going on with 1 node";
  CHECK(bench.At(1010ms, Waiting{"1 node, waiting for node c"}) == "");
  CHECK(bench.Assign(1020ms, 1) == "node b is lost; going on with 1 node");
}

TEST_CASE("waiting: an agent whose coordinator takes a lost one's round over says so") {
  Bench bench;
  bench.coordinator_is_member = false;
  bench.At(0ms, rendezvous::ContactMade{"node1:29400", false});
  bench.Assign(0ms);
  CHECK(bench.At(1s, rendezvous::ContactLost{"Socket closed", false}) == "");
  CHECK(bench.At(2s, rendezvous::ContactMade{"node2:4711", true}) ==
        "the coordinator at node1:29400 was lost (Socket closed); this node serves the rendezvous "
        "at node2:4711 now");
  CHECK(bench.At(2s, rendezvous::ContactRestored{}) == "");
}

TEST_CASE("waiting: workers that do not stop for a drain are told of, with the time they have") {
  Bench bench;
  bench.Assign(0ms);
  CHECK(bench.At(1s, rendezvous::Drained{Round{1}, "node b is lost"}) ==
        "node b is lost; stopping this node's workers");
  CHECK(bench.PassTo(2999ms) == "");
  CHECK(bench.PassTo(3s) == "node b is lost; stopping ranks 4-6, 28 s left");
  CHECK(bench.PassTo(20s) == "");
}

TEST_CASE("waiting: a failure that the coordinator does not answer to is named") {
  const std::string failed = "rank 4 failed: exit code 7; the coordinator at node1:29400 ";
  Bench bench;
  bench.At(0ms, rendezvous::ContactMade{"node1:29400", false});
  bench.Assign(0ms, 2);
  CHECK(bench.FailWorker(10s, 0) == "");
  CHECK(bench.At(10s, WorkersGone{}) == "");
  SUBCASE("once it is known to be lost") {
    const rendezvous::ContactLost lost{"its lease is over"};
    CHECK(bench.At(11s, lost) == failed + "hears of it when it answers again");
    CHECK(bench.At(12s, lost) == "");
    CHECK(bench.PassTo(20s) == "");
  }
  SUBCASE("before that is known") {
    CHECK(bench.next() == kStart + 13s);
    CHECK(bench.PassTo(13s) == failed + "has not answered to that yet");
    CHECK(bench.At(14s, rendezvous::ContactLost{"its lease is over"}) == "");
    CHECK(bench.next() == std::nullopt);
  }
  SUBCASE("though the round is stopped, as it cannot keep the verdict yet") {
    bench.At(11s, rendezvous::Drained{Round{1}, "rank 4 failed: exit code 7"});
    CHECK(bench.PassTo(13s) == failed + "has not told the end of the job yet");
  }
  SUBCASE("but not one with which the job has ended") {
    bench.At(12s, rendezvous::Concluded{{7, "rank 4 failed"}});
    CHECK(bench.PassTo(13s) == "");
  }
}

TEST_CASE("waiting: that a wait which was told is over is told, too") {
  Bench bench;
  CHECK(bench.At(0ms, Waiting{"1 of 2 nodes"}) == "");
  CHECK(bench.PassTo(500ms) == "1 of 2 nodes");
  SUBCASE("with all nodes") { CHECK(bench.Assign(1s, 2) == "2 of 2 nodes: starting 4 ranks"); }
  SUBCASE("with fewer") { CHECK(bench.Assign(1s, 1) == "1 of 2 nodes: starting 2 ranks"); }
}

TEST_CASE("waiting: a lost coordinator is called lost, with its place, and when it is back") {
  Bench bench;
  bench.At(0ms, rendezvous::ContactMade{"node1:29400 (10.0.0.1)", false});
  bench.Assign(0ms);
  CHECK(bench.At(1s, rendezvous::ContactLost{"Socket closed", false}) == "");
  SUBCASE("a short break is not worth a line") {
    CHECK(bench.At(2s, rendezvous::ContactRestored{}) == "");
    CHECK(bench.PassTo(10s) == "");
  }
  SUBCASE("that this node is in its place is told instead of its coming back") {
    bench.PassTo(6s);
    CHECK(bench.At(61s, rendezvous::ContactMade{"node1:29400", true}) ==
          "this node serves the rendezvous at node1:29400 now");
    CHECK(bench.At(61s, rendezvous::ContactRestored{}) == "");
  }
  SUBCASE("a node that has done its work tells what it waits for from then on") {
    bench.PassTo(6s);
    for (const int local_rank : {0, 1, 2}) bench.At(8s, WorkerEnd{.local_rank = local_rank});
    CHECK(bench.PassTo(8s) ==
          "the coordinator at node1:29400 (10.0.0.1) is lost: Socket closed; all workers of this "
          "node succeeded, waiting for it up to 300 s");
    CHECK(bench.PassTo(60s) == "");
  }
  SUBCASE("a long one is") {
    CHECK(bench.PassTo(6s) ==
          "the coordinator at node1:29400 (10.0.0.1) is lost: Socket closed; this node's workers "
          "go on without it up to 595 s");
    CHECK(bench.PassTo(60s) == "");
    CHECK(bench.At(61s, rendezvous::ContactRestored{}) ==
          "the coordinator at node1:29400 (10.0.0.1) is back");
  }
}

TEST_CASE("waiting: who serves another run in a lost coordinator's place is told of, once") {
  const rendezvous::ContactLost refused{"Connection refused", true};
  const rendezvous::ContactLost replaced{"node1:29400 serves the run \"b\", not \"a\"", true, true};
  Bench bench;
  bench.coordinator_is_member = false;
  bench.Assign(0ms);
  bench.At(1s, refused);
  CHECK(bench.PassTo(6s) ==
        "the coordinator is lost: Connection refused; this node's workers go on without it up to "
        "595 s");
  CHECK(bench.At(101s, replaced) ==
        "the coordinator is lost: node1:29400 serves the run \"b\", not \"a\"; this node's workers "
        "go on without it up to 500 s");
  CHECK(bench.At(102s, refused) == "");
  CHECK(bench.At(103s, replaced) == "");
}

TEST_CASE("waiting: what comes after a coordinator that died is told as its consequence") {
  Bench bench;
  bench.At(0ms, rendezvous::ContactMade{"node1:29400", false});
  bench.Assign(0ms, 2);
  bench.At(1s, rendezvous::ContactLost{"Connection refused", true});
  CHECK(bench.PassTo(4s) ==
        "the coordinator at node1:29400 is lost: Connection refused; its process is gone, and with "
        "it the ranks of node n1; stopping this node's workers and waiting for it to come back");
  bench.At(5s, WorkersGone{});
  CHECK(bench.At(5s, Waiting{"1 node, waiting 2 s for more"}) == "");
  CHECK(bench.PassTo(6s) == "1 node, waiting 2 s for more");
  SUBCASE("a smaller round, of which a new coordinator cannot say that it is one") {
    CHECK(bench.Assign(7s, 1) == "going on with 1 node and 2 ranks instead of 2 and 4");
  }
  SUBCASE("the end of the wait for another") {
    CHECK(bench.At(605s, rendezvous::RendezvousFailed{"no coordinator answered within 600 s"}) ==
          "error: the coordinator at node1:29400 was lost (Connection refused); no coordinator "
          "answered within 600 s");
  }
}

TEST_CASE("waiting: a node that is done says how it ends if its coordinator stays gone") {
  Bench bench;
  bench.max_restarts = 1;
  bench.At(0ms, rendezvous::ContactMade{"node1:29400", false});
  bench.Assign(0ms, 2);
  for (const int local_rank : {0, 1, 2}) bench.At(1s, WorkerEnd{.local_rank = local_rank});
  bench.At(1s, WorkersGone{});
  bench.At(1s, rendezvous::ContactLost{"Connection refused", true});
  CHECK(bench.PassTo(6s) ==
        "the coordinator at node1:29400 is lost: Connection refused; its process is gone, and with "
        "it what node n1 had not finished; all workers of this node succeeded, so it ends with 0 "
        "if no coordinator of the job comes within 295 s");
  CHECK(bench.PassTo(301s) ==
        "the coordinator at node1:29400 is lost: Connection refused; all workers of this node "
        "succeeded, so it ends with 0 without the job's verdict");
}

TEST_CASE("waiting: a node that waits is told of the node that went with the coordinator") {
  Bench bench;
  bench.max_restarts = 1;
  bench.At(0ms, rendezvous::ContactMade{"node1:29400", false});
  bench.Assign(0ms, 2);
  bench.FailWorker(1s, 0);
  bench.At(1s, WorkersGone{});
  bench.At(1s, rendezvous::ContactLost{"Connection refused", true});
  const std::string gone =
      "the coordinator at node1:29400 is lost: Connection refused; its process is gone, and with "
      "it the ranks of node n1; waiting for it to come back";
  SUBCASE("once that is known") {
    CHECK(bench.PassTo(3999ms) != Contains("n1"));
    CHECK(bench.next() == kStart + 4s);
    CHECK(bench.PassTo(4s) == gone);
    CHECK(bench.PassTo(10s) == "");
  }
  SUBCASE("before this node takes its place") {
    const std::string said = bench.At(2s, rendezvous::ContactMade{"node2:29400", true});
    CHECK(said == gone + "this node serves the rendezvous at node2:29400 now");
    CHECK(bench.PassTo(10s) == "");
  }
  SUBCASE("and not if it is back") {
    bench.At(2s, rendezvous::ContactRestored{});
    CHECK(bench.PassTo(10s) != Contains("n1"));
  }
}

TEST_CASE("waiting: one that lasts is told, and then whenever its reason changes") {
  Bench bench;
  CHECK(bench.At(0ms, Waiting{"1 of 3 nodes"}) == "");
  CHECK(bench.At(400ms, Waiting{"2 of 3 nodes"}) == "");
  CHECK(bench.PassTo(500ms) == "2 of 3 nodes");
  CHECK(bench.At(600ms, Waiting{"1 of 3 nodes"}) == "1 of 3 nodes");
  CHECK(bench.At(700ms, Waiting{"1 of 3 nodes"}) == "");
  CHECK(bench.next() == std::nullopt);  // without a deadline nothing more is to be said
}

TEST_CASE("waiting: a long one is told again every minute, with the time it has left") {
  Bench bench;
  const Waiting wait{"1 of 2 nodes, waiting for 1 more", kStart + 200s};
  CHECK(bench.At(0ms, wait) == "");
  CHECK(bench.next() == kStart + 500ms);
  CHECK(bench.PassTo(500ms) == wait.reason + ", 200 s left");
  CHECK(bench.next() == kStart + 60500ms);
  CHECK(bench.PassTo(60500ms) == wait.reason + ", 140 s left");
  CHECK(bench.At(61s, wait) == "");
  CHECK(bench.PassTo(120500ms) == wait.reason + ", 80 s left");

  SUBCASE("another reason is told at once, and the minute begins anew") {
    CHECK(bench.At(130s, Waiting{"2 of 3", kStart + 200s}) == "2 of 3, 70 s left");
    CHECK(bench.next() == kStart + 190s);
    CHECK(bench.PassTo(191s) == "2 of 3, 9 s left");
    CHECK(bench.next() == std::nullopt);  // the end has a line of its own
  }
  SUBCASE("a deadline that moves is told at the next turn") {
    CHECK(bench.At(130s, Waiting{wait.reason, kStart + 1000s}) == "");
    CHECK(bench.next() == kStart + 180500ms);
    CHECK(bench.PassTo(180500ms) == wait.reason + ", 820 s left");
  }
  SUBCASE("a place ends it") {
    CHECK(bench.Assign(130s) == "2 of 2 nodes: starting 4 ranks");
    CHECK(bench.next() == std::nullopt);
  }
}

}  // namespace
}  // namespace ddprun::launcher
