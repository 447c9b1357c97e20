// What the user is told of a wait for a place in the round, and of a stop by a signal.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "launcher/agent/agent_core.h"

namespace ddprun::launcher {
namespace {

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
  std::string Assign(Duration since_start, int nodes = 2, const std::string& note = "") {
    rendezvous::Assignment assignment;
    assignment.note = note;
    assignment.epoch = Epoch{1};
    assignment.round = Round{++rounds_};
    assignment.node_count = nodes;
    return At(since_start, rendezvous::Assigned{assignment});
  }
  // The round is stopped without a word, and the agent joins again.
  void EndRound(Duration since_start) {
    At(since_start, rendezvous::Drained{Round{rounds_}, ""});
    At(since_start, WorkersGone{});
  }
  std::optional<TimePoint> next() const { return core_.NextDeadline(); }

 private:
  AgentCore core_{AgentPolicy{}};
  uint64_t rounds_ = 0;
};

TEST_CASE("waiting: one that is over soon is not told") {
  Bench bench;
  CHECK(bench.At(0ms, Waiting{"1 of 3 nodes"}) == "");
  CHECK(bench.PassTo(400ms) == "");
  CHECK(bench.Assign(400ms) == "");
  CHECK(bench.next() == std::nullopt);
}

TEST_CASE("stopping: what a further signal does is told, a second one where this is the first") {
  struct Row {
    int signal;
    std::string text;
  };
  const std::vector<Row> rows = {
      {2, "SIGINT: stopping the workers; a second SIGINT or SIGTERM kills them at once"},
      {15, "SIGTERM: stopping the workers; a second SIGINT or SIGTERM kills them at once"},
      {1, "SIGHUP: stopping the workers; SIGINT or SIGTERM kills them at once"},
      {3, "SIGQUIT: stopping the workers; SIGINT or SIGTERM kills them at once"}};
  for (const Row& row : rows) {
    Bench bench;
    bench.Assign(0ms);
    CHECK(bench.At(1ms, SignalReceived{row.signal}) == row.text);
  }
}

TEST_CASE("waiting: why the next round is smaller is told, however short the wait for it was") {
  Bench bench;
  const std::string note = "node b is lost; going on with 1 node";
  CHECK(bench.Assign(0ms, 2) == "");
  bench.EndRound(1s);
  SUBCASE("in the moment in which it begins") {
    CHECK(bench.At(1010ms, Waiting{"1 node, waiting for node c"}) == "");
    CHECK(bench.Assign(1020ms, 1, note) == note);
  }
  SUBCASE("after a wait that was told") {
    CHECK(bench.At(1s, Waiting{"1 node, waiting for node c"}) == "");
    CHECK(bench.PassTo(1500ms) == "1 node, waiting for node c");
    CHECK(bench.Assign(2s, 1, note) == note);
  }
  SUBCASE("and not of a round as large as the last") {
    CHECK(bench.At(1010ms, Waiting{"1 of 2 nodes"}) == "");
    CHECK(bench.Assign(1020ms, 2) == "");
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
    CHECK(bench.Assign(130s) == "");
    CHECK(bench.next() == std::nullopt);
  }
}

}  // namespace
}  // namespace ddprun::launcher
