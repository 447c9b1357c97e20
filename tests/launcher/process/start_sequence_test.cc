#include "launcher/process/start_sequence.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>

#include "launcher/process/process.h"
#include "tests/launcher/process/file_gate.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using namespace ddprun::testing;

// A sequence of toy workers that sleep, and what it has called, in order: "started 0", "failed 1",
// "slow". Its end kills those that live.
struct Fixture {
  explicit Fixture(Duration slow_after = 1h)
      : sequence(io,
                 {.baseline = TestBaseline(),
                  .slow_after = slow_after,
                  .is_held_for_test = [this] { return is_held; }},
                 {.on_started =
                      [this](size_t index, pid_t pid) {
                        Note("started", index);
                        children[index] = pid;
                      },
                  .on_failed =
                      [this](size_t index, const SpawnFailure& why) {
                        Note("failed", index);
                        failures[index] = why.text;
                      },
                  .on_slow = [this](const std::string&) { calls.push_back("slow"); }}) {}
  ~Fixture() {
    sequence.Stop();
    KillChildren();
    sequence.End();
  }
  // One that has not begun its program by End() keeps for good what it reads: that is a leak.
  void KillChildren() {
    for (const auto& [index, pid] : children) kill(pid, SIGKILL);
    for (const auto& [index, pid] : children) WaitUntil([pid] { return !IsRunning(pid); });
    RunReady();
    for (const auto& [index, pid] : children) ReapChild(pid);
    children.clear();
  }

  void Begin(size_t count) {
    std::vector<SpawnRequest> requests(
        count,
        {.executable = ToyWorker(), .argv = {"toy_worker", "sleep"}, .env = TestEnvironment()});
    for (const auto& [index, path] : executables) requests[index].executable = path;
    sequence.Begin(std::move(requests));
  }
  void Note(const std::string& what, size_t index) {
    calls.push_back(what + " " + std::to_string(index));
    if (on_call) on_call();
  }
  std::string Told() const {
    std::string text;
    for (const std::string& call : calls) text += (text.empty() ? "" : ", ") + call;
    return text;
  }
  bool RunUntilCalls(size_t count) {
    return RunUntil(io, [&] { return calls.size() >= count; });
  }
  // Runs whatever is ready, many times over.
  void RunReady() {
    for (int i = 0; i < 100; ++i) {
      io.restart();
      io.poll();
    }
  }

  boost::asio::io_context io;
  bool is_held = false;                       // no worker after the first
  std::map<size_t, std::string> executables;  // where it is not the toy worker
  std::vector<std::string> calls;
  std::function<void()> on_call;
  std::map<size_t, pid_t> children;
  std::map<size_t, std::string> failures;
  StartSequence sequence;
};

TEST_CASE("start_sequence: nothing happens inside Begin, and all workers start in their order") {
  Fixture fixture;
  fixture.Begin(4);
  CHECK(fixture.calls.empty());
  CHECK(fixture.sequence.is_starting());
  REQUIRE(fixture.RunUntilCalls(4));
  CHECK(fixture.Told() == "started 0, started 1, started 2, started 3");
  CHECK_FALSE(fixture.sequence.is_starting());
}

TEST_CASE("start_sequence: the first worker goes ahead alone until its program runs") {
  const TempDir temp;
  const auto gate = MakeSlowToyWorker(temp.File("slow"));
  if (gate == nullptr) return SkipTest("fanotify permission events are not available here");
  Fixture fixture;
  fixture.executables[0] = temp.File("slow");
  fixture.Begin(3);
  REQUIRE(RunUntil(fixture.io, [&] { return gate->HasVisitor(); }));
  fixture.RunReady();
  CHECK(fixture.Told() == "started 0");
  CHECK(fixture.sequence.is_starting());
  gate->LetPass();
  REQUIRE(fixture.RunUntilCalls(3));
  CHECK(fixture.Told() == "started 0, started 1, started 2");
}

TEST_CASE("start_sequence: one that hangs behind the first does not hold up the others") {
  const TempDir temp;
  const auto gate = MakeSlowToyWorker(temp.File("slow"));
  if (gate == nullptr) return SkipTest("fanotify permission events are not available here");
  Fixture fixture(/*slow_after=*/10ms);  // lower bound: the gate stays shut
  fixture.executables[1] = temp.File("slow");
  fixture.executables[2] = temp.File("slow");
  fixture.Begin(4);
  // The first may be slow, too; of the others that is told once, although two of them hang.
  const auto slow_others = [&fixture] {
    const auto others = std::find(fixture.calls.begin(), fixture.calls.end(), "started 1");
    return std::count(others, fixture.calls.end(), "slow");
  };
  REQUIRE(RunUntil(fixture.io, [&] { return fixture.children.size() == 4 && slow_others() > 0; }));
  fixture.RunReady();
  CHECK(slow_others() == 1);
}

TEST_CASE("start_sequence: a first worker that cannot run is told before another is started") {
  Fixture fixture;
  fixture.executables[0] = "./no-such-program";
  fixture.on_call = [&fixture] {
    if (fixture.calls.back() == "failed 0") fixture.sequence.Stop();
  };
  fixture.Begin(3);
  REQUIRE(fixture.RunUntilCalls(2));
  fixture.RunReady();
  CHECK(fixture.Told() == "started 0, failed 0");
  CHECK(fixture.failures[0] == "exec \"./no-such-program\": No such file or directory (ENOENT)");
  CHECK_FALSE(fixture.sequence.is_starting());
}

TEST_CASE("start_sequence: a failure can be asked for before the io_context brings it") {
  Fixture fixture;
  fixture.executables[1] = "./no-such-program";
  fixture.Begin(2);
  REQUIRE(RunUntil(fixture.io, [&] { return fixture.children.size() == 2; }));
  REQUIRE(WaitUntil([&] { return !IsRunning(fixture.children[1]); }));
  fixture.sequence.Check();
  CHECK(fixture.failures.count(1) == 1);
  fixture.RunReady();
  CHECK(std::count(fixture.calls.begin(), fixture.calls.end(), "failed 1") == 1);
}

TEST_CASE("start_sequence: those that cannot run fail one by one, and the others run") {
  Fixture fixture;
  for (size_t i = 1; i < 20; i += 2) {
    fixture.executables[i] = "./no-such-program-" + std::to_string(i);
  }
  fixture.Begin(20);
  const auto is_any_on_its_way = [&fixture] {
    return std::any_of(fixture.children.begin(), fixture.children.end(), [&](const auto& child) {
      return fixture.sequence.IsOnItsWay(child.second);
    });
  };
  REQUIRE(
      RunUntil(fixture.io, [&] { return fixture.children.size() == 20 && !is_any_on_its_way(); }));
  CHECK(fixture.failures.size() == 10);
  CHECK(fixture.calls.size() == 30);  // each is told of once
  for (const auto& [index, text] : fixture.failures) {
    CHECK(text == "exec \"./no-such-program-" + std::to_string(index) +
                      "\": No such file or directory (ENOENT)");
  }
  for (const auto& [index, pid] : fixture.children) {
    const bool should_run = index % 2 == 0;
    CHECK(WaitUntil([&, pid = pid] { return IsRunning(pid) == should_run; }));
  }
}

TEST_CASE("start_sequence: what is held goes on once it is let go") {
  Fixture fixture;
  fixture.is_held = true;
  fixture.Begin(3);
  REQUIRE(fixture.RunUntilCalls(1));
  // Until then it goes ahead alone whether the others are held or not.
  REQUIRE(
      RunUntil(fixture.io, [&] { return !fixture.sequence.IsOnItsWay(fixture.children.at(0)); }));
  fixture.RunReady();
  CHECK(fixture.Told() == "started 0");
  fixture.is_held = false;
  REQUIRE(fixture.RunUntilCalls(3));
  CHECK(fixture.Told() == "started 0, started 1, started 2");
}

TEST_CASE("start_sequence: a stop starts no more, and a new run knows nothing of the old one") {
  Fixture fixture;
  fixture.is_held = true;
  fixture.Begin(3);
  REQUIRE(fixture.RunUntilCalls(1));
  fixture.sequence.Stop();
  CHECK_FALSE(fixture.sequence.is_starting());
  fixture.RunReady();
  CHECK(fixture.Told() == "started 0");

  fixture.KillChildren();
  fixture.sequence.End();
  fixture.Begin(1);  // posted, and taken back
  fixture.sequence.End();
  fixture.Begin(2);
  REQUIRE(fixture.RunUntilCalls(2));
  fixture.RunReady();
  CHECK(fixture.Told() == "started 0, started 0");
}

}  // namespace
}  // namespace ddprun::launcher
