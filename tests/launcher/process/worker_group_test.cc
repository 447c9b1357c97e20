#include "launcher/process/worker_group.h"

#include <csignal>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include "launcher/process/process.h"
#include "rendezvous/base/steady_clock.h"
#include "tests/launcher/process/file_gate.h"
#include "tests/launcher/process/group_fixture.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using namespace ddprun::testing;

using Fixture = GroupFixture;

const bool kBothWays[] = {true, false};

TEST_CASE("worker_group: every exit code of a worker is reported as it is") {
  for (const bool use_pidfd : kBothWays) {
    Fixture fixture(use_pidfd);
    std::vector<WorkerSpec> specs;
    for (int code = 0; code < 256; ++code) {
      specs.push_back(fixture.Toy(code, {"exit", std::to_string(code)}));
    }
    fixture.group.Start(std::move(specs));
    REQUIRE(fixture.RunToEnd());
    const auto exits = fixture.All<WorkerExited>();
    REQUIRE(exits.size() == 256);
    for (const WorkerExited& exit : exits) {
      CHECK(exit.status == ExitStatus{.exited = true, .code = exit.local_rank});
      CHECK_FALSE(exit.was_told_to_stop);
    }
    CHECK(fixture.All<GroupEmpty>().size() == 1);
    CHECK(fixture.group.is_empty());
  }
}

TEST_CASE("worker_group: every deadly signal of a worker is reported as it is") {
  Fixture fixture;
  std::vector<WorkerSpec> specs;
  for (int signal = 1; signal < 32; ++signal) {
    if (signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU ||
        signal == SIGCONT || signal == SIGCHLD || signal == SIGURG || signal == SIGWINCH) {
      continue;
    }
    specs.push_back(fixture.Toy(signal, {"die", std::to_string(signal)}));
  }
  const size_t count = specs.size();
  fixture.group.Start(std::move(specs));
  REQUIRE(fixture.RunToEnd());
  REQUIRE(fixture.All<WorkerExited>().size() == count);
  for (const WorkerExited& exit : fixture.All<WorkerExited>()) {
    CHECK_FALSE(exit.status.exited);
    CHECK(exit.status.signal == exit.local_rank);
    CHECK(ExitCodeOf(exit.status) == 128 + exit.local_rank);
  }
}

TEST_CASE("worker_group: a worker that something else reaped has ended, with an unknown status") {
  Fixture fixture;
  fixture.group.Start({fixture.Toy(0, {"sleep"})});
  REQUIRE(fixture.RunUntilStarted(1));
  const pid_t pid = fixture.All<WorkerStarted>()[0].pid;
  kill(pid, SIGKILL);
  ReapChild(pid);
  REQUIRE(fixture.RunToEnd());
  REQUIRE(fixture.All<WorkerExited>().size() == 1);
  CHECK(fixture.All<WorkerExited>()[0].status.is_unknown);
}

TEST_CASE("worker_group: a stop reaches running, stopped and deaf workers") {
  for (const bool use_pidfd : kBothWays) {
    Fixture fixture(use_pidfd);
    fixture.group.Start({fixture.Toy(0, {"say", "ready", "sleep"}),
                         fixture.Toy(1, {"say", "ready", "stop", "sleep"}),
                         fixture.Toy(2, {"ignore", "15", "say", "ready", "sleep"})});
    REQUIRE(fixture.RunUntilStarted(3));
    const pid_t stopped = fixture.All<WorkerStarted>()[1].pid;
    CHECK(WaitUntil([&] { return StateOf(stopped) == 'T'; }));
    const pid_t deaf = fixture.All<WorkerStarted>()[2].pid;
    fixture.output.ReadUntil("ready\nready\nready\n");

    fixture.group.Stop(SIGTERM, 1s);

    REQUIRE(fixture.RunToEnd());
    const auto exits = fixture.All<WorkerExited>();
    REQUIRE(exits.size() == 3);
    for (const WorkerExited& exit : exits) {
      CHECK(exit.status.signal == (exit.pid == deaf ? SIGKILL : SIGTERM));
      CHECK(exit.was_told_to_stop);
    }
    const auto ignored = fixture.All<WorkerNotice>();
    REQUIRE(ignored.size() == 1);
    CHECK(ignored[0].text ==
          "rank 12 (pid " + std::to_string(deaf) + ") did not end within 1 s of SIGTERM: killed");
  }
}

// The signal may have come to all processes at once: the worker dies before it is sent another.
TEST_CASE("worker_group: a worker that ends when the stop has begun was told to stop") {
  for (const bool use_pidfd : kBothWays) {
    GroupFixture fixture(use_pidfd);
    fixture.group.Start({fixture.Toy(0, {"say", "ready", "sleep"})});
    REQUIRE(fixture.RunUntilStarted(1));
    fixture.output.ReadUntil("ready\n");

    fixture.group.BeginStop(1s);
    kill(fixture.All<WorkerStarted>()[0].pid, SIGTERM);

    REQUIRE(fixture.RunToEnd());
    const auto exits = fixture.All<WorkerExited>();
    REQUIRE(exits.size() == 1);
    CHECK(exits[0].status.signal == SIGTERM);
    CHECK(exits[0].was_told_to_stop);
  }
}

TEST_CASE("worker_group: a worker that ended in time is not blamed for an agent that is late") {
  for (const bool use_pidfd : kBothWays) {
    constexpr auto kGrace = 10ms;  // lower bound: the loop stands until it is over
    Fixture fixture(use_pidfd);
    fixture.group.Start({fixture.Toy(0, {"say", "ready", "sleep"})});
    REQUIRE(fixture.RunUntilStarted(1));
    const pid_t worker = fixture.All<WorkerStarted>()[0].pid;
    fixture.output.ReadUntil("ready\n");
    const TimePoint kill_at = SteadyNow() + kGrace;
    fixture.group.Stop(SIGTERM, kGrace);
    // The loop does not run meanwhile.
    REQUIRE(WaitUntil([&] { return StateOf(worker) == 'Z' && SteadyNow() > kill_at + kGrace; }));
    REQUIRE(fixture.RunToEnd());
    CHECK(fixture.All<WorkerNotice>().empty());
    CHECK(fixture.All<WorkerExited>()[0].status.signal == SIGTERM);
  }
}

TEST_CASE("worker_group: deaths are reported in the order in which they happened") {
  // The loop does not run between the deaths, so all are seen in one turn. The highest rank dies
  // first: a walk over the children would report the lowest.
  constexpr int kWorkers = 6;
  Fixture fixture;
  std::vector<WorkerSpec> specs;
  for (int rank = 0; rank < kWorkers; ++rank) specs.push_back(fixture.Toy(rank, {"sleep"}));
  fixture.group.Start(std::move(specs));
  REQUIRE(fixture.RunUntilStarted(kWorkers));
  const auto started = fixture.All<WorkerStarted>();
  for (int rank = kWorkers - 1; rank >= 0; --rank) {
    const pid_t pid = started[static_cast<size_t>(rank)].pid;
    kill(pid, SIGKILL);
    REQUIRE(WaitUntil([&] { return StateOf(pid) == 'Z'; }));
  }
  REQUIRE(fixture.RunToEnd());
  const auto exits = fixture.All<WorkerExited>();
  REQUIRE(exits.size() == kWorkers);
  for (int i = 0; i < kWorkers; ++i) {
    CHECK(exits[static_cast<size_t>(i)].local_rank == kWorkers - 1 - i);
  }
}

pid_t StartedPid(const Fixture& fixture, int local_rank) {
  for (const WorkerStarted& started : fixture.All<WorkerStarted>()) {
    if (started.local_rank == local_rank) return started.pid;
  }
  return 0;
}

TEST_CASE("worker_group: a worker that cannot start undoes those before it") {
  Fixture fixture;
  std::vector<WorkerSpec> specs = {fixture.Toy(0, {"sleep"}),
                                   fixture.Toy(1, {"ignore", "15", "sleep"}), fixture.Toy(2, {}),
                                   fixture.Toy(3, {"sleep"})};
  specs[2].process.executable = "./no-such-program";
  fixture.group.Start(std::move(specs));
  REQUIRE(fixture.RunToEnd());
  // Rank 13 is on its way by the time of the failure, or not; rank 12 has no end of its own.
  const size_t started = fixture.All<WorkerStarted>().size();
  CHECK(started >= 3);
  for (const WorkerExited& exit : fixture.All<WorkerExited>()) CHECK(exit.was_told_to_stop);
  CHECK(fixture.All<WorkerExited>().size() == started - 1);
  const auto failed = fixture.All<StartFailed>();
  REQUIRE(failed.size() == 1);
  CHECK(failed[0].local_rank == 2);
  CHECK(failed[0].pid == StartedPid(fixture, 2));
  CHECK(failed[0].exit_code == kExitNotFound);
  CHECK(failed[0].text ==
        "spawn rank 12: exec \"./no-such-program\": No such file or directory (ENOENT)");
  // Last but one: everything already started was gone by then.
  CHECK(std::holds_alternative<StartFailed>(fixture.events[fixture.events.size() - 2]));
  CHECK(std::holds_alternative<GroupEmpty>(fixture.events.back()));
}

TEST_CASE("worker_group: of several that cannot start one speaks for itself, each other one ends") {
  Fixture fixture;
  std::vector<WorkerSpec> specs;
  for (int i = 0; i < 4; ++i) specs.push_back(fixture.Toy(i, {"sleep"}));
  for (int i = 1; i < 4; ++i) {
    specs[static_cast<size_t>(i)].process.executable = "./no-such-program";
  }
  fixture.group.Start(std::move(specs));
  REQUIRE(fixture.RunToEnd());
  const size_t started = fixture.All<WorkerStarted>().size();
  CHECK(fixture.All<StartFailed>().size() == 1);
  CHECK(fixture.All<WorkerExited>().size() == started - 1);
  for (const WorkerExited& exit : fixture.All<WorkerExited>()) CHECK(exit.was_told_to_stop);
}

TEST_CASE("worker_group: a first worker that cannot start is alone") {
  Fixture fixture;
  std::vector<WorkerSpec> specs = {fixture.Toy(0, {}), fixture.Toy(1, {"sleep"}),
                                   fixture.Toy(2, {"sleep"})};
  for (WorkerSpec& spec : specs) spec.process.executable = "./no-such-program";
  fixture.group.Start(std::move(specs));
  REQUIRE(fixture.RunToEnd());
  CHECK(fixture.All<WorkerStarted>().size() == 1);
  CHECK(fixture.All<WorkerExited>().empty());
  REQUIRE(fixture.All<StartFailed>().size() == 1);
  CHECK(fixture.All<StartFailed>()[0].local_rank == 0);
}

TEST_CASE("worker_group: a kill behind the clone reaches a child that has no group yet") {
  for (int i = 0; i < 100; ++i) {
    Fixture fixture;
    fixture.on_event = [&fixture](const WorkerEvent& event) {
      if (std::holds_alternative<WorkerStarted>(event)) fixture.group.KillNow();
    };
    fixture.group.Start({fixture.Toy(0, {"sleep"})});
    REQUIRE(fixture.RunToEnd());
  }
}

TEST_CASE("worker_group: an executable that hangs holds up its own worker alone") {
  const TempDir temp;
  const std::string slow = temp.File("slow");
  const auto gate = MakeSlowToyWorker(slow);  // which is never opened
  if (gate == nullptr) return SkipTest("fanotify permission events are not available here");
  // lower bound: the gate stays shut
  Fixture fixture(true, /*is_spawn_held=*/false, 20s, TestBaseline(), nullptr,
                  /*slow_start_after=*/10ms);
  std::vector<WorkerSpec> specs;
  for (int i = 0; i < 3; ++i) specs.push_back(fixture.Toy(i, {"say", "ran"}));
  specs[1].process.executable = slow;
  fixture.group.Start(std::move(specs));
  REQUIRE(RunUntil(fixture.io, [&] { return fixture.All<WorkerExited>().size() == 2; }));
  REQUIRE(RunUntil(fixture.io, [&] { return !fixture.All<WorkerNotice>().empty(); }));
  CHECK(fixture.All<WorkerNotice>()[0].text.starts_with("no answer from exec \""));
  CHECK_FALSE(fixture.group.is_empty());
  // It must not dump core: it shares our memory.
  fixture.group.Stop(SIGQUIT, 1h);
  REQUIRE(fixture.RunToEnd());
  REQUIRE(fixture.All<WorkerExited>().size() == 3);
  const WorkerExited held = fixture.All<WorkerExited>()[2];
  CHECK(held.local_rank == 1);
  CHECK(held.status == ExitStatus{.signal = SIGTERM});
}

TEST_CASE("worker_group: the agent keeps its own OOM score") {
  // The workers take theirs while they still share the agent's memory, which gives it to the agent.
  const std::string path = "/proc/self/oom_score_adj";
  const auto score = [&path] {
    int value = 0;
    std::ifstream(path) >> value;
    return value;
  };
  const int before = score();
  if (before > 800) return SkipTest("the OOM score cannot be raised by 200 here");
  ProcessBaseline baseline = TestBaseline();
  baseline.oom_scores = {before + 100, before + 200};  // up needs no rights, and down again neither
  std::ofstream(path) << before + 100;
  Fixture fixture(true, /*is_spawn_held=*/false, 20s, baseline);
  fixture.group.Start({fixture.Toy(0, {"oom", "sleep"}), fixture.Toy(1, {"oom", "sleep"})});
  CHECK(fixture.RunUntilStarted(2));
  const std::string line = std::to_string(before + 200) + "\n";
  CHECK(fixture.output.ReadUntil(line + line) == line + line);
  CHECK(RunUntil(fixture.io, [&] { return score() == before + 100; }));
  fixture.group.KillNow();
  CHECK(fixture.RunToEnd());
  std::ofstream(path) << before;
}

TEST_CASE("worker_group: a stop between the first spawn and the last starts no more") {
  Fixture fixture(true, /*is_spawn_held=*/true);
  fixture.group.Start({fixture.Toy(0, {"sleep"}), fixture.Toy(1, {"sleep"})});
  REQUIRE(fixture.RunUntilStarted(1));
  fixture.group.Stop(SIGTERM, 20s);
  REQUIRE(fixture.RunToEnd());
  CHECK(fixture.All<WorkerStarted>().size() == 1);
  REQUIRE(fixture.All<WorkerExited>().size() == 1);
  CHECK(fixture.All<WorkerExited>()[0].status.signal == SIGTERM);
}

TEST_CASE("worker_group: a stop before the first spawn starts nothing") {
  Fixture fixture;
  fixture.group.Start({fixture.Toy(0, {"sleep"})});
  fixture.group.Stop(SIGTERM, 20s);
  REQUIRE(fixture.RunToEnd());
  CHECK(fixture.events.size() == 1);  // GroupEmpty
}

TEST_CASE("worker_group: it can start again, also from its own GroupEmpty") {
  Fixture fixture;
  fixture.group.Start({fixture.Toy(0, {"exit", "1"})});
  REQUIRE(fixture.RunToEnd());
  fixture.group.Start({fixture.Toy(0, {"exit", "2"})});
  REQUIRE(RunUntil(fixture.io, [&] { return fixture.All<GroupEmpty>().size() == 2; }));
  CHECK(fixture.All<WorkerExited>()[1].status.code == 2);
}

TEST_CASE("worker_group: kill now spares no grace") {
  Fixture fixture;
  fixture.group.Start(
      {fixture.Toy(0, {"ignore", "15", "stubborn_helper", "say", "ready", "sleep"})});
  REQUIRE(fixture.RunUntilStarted(1));
  const pid_t helper = NumberAfter(fixture.output.ReadUntil("ready\n"), "left ");
  fixture.group.Stop(SIGTERM, 1h);
  fixture.group.KillNow();
  REQUIRE(fixture.RunToEnd());
  CHECK_FALSE(IsRunning(helper));
  CHECK(fixture.All<WorkerExited>()[0].status.signal == SIGKILL);
  CHECK(fixture.All<WorkerNotice>().empty());
}

TEST_CASE("worker_group: a second stop can only shorten the grace") {
  Fixture fixture;
  fixture.group.Start({fixture.Toy(0, {"ignore", "15", "say", "ready", "sleep"})});
  REQUIRE(fixture.RunUntilStarted(1));
  fixture.output.ReadUntil("ready\n");
  fixture.group.Stop(SIGTERM, 1h);
  fixture.group.Stop(SIGTERM, 10ms);  // lower bound: the worker ignores it
  fixture.group.Stop(SIGTERM, 1h);
  REQUIRE(fixture.RunToEnd());
  CHECK(fixture.All<WorkerExited>()[0].status.signal == SIGKILL);
}

TEST_CASE("worker_group: user signals reach the worker, not its helpers") {
  Fixture fixture;
  // The helper is forked before the signal is handled, so USR1 would kill it.
  fixture.group.Start({fixture.Toy(0, {"helper", "handle", "10", "say", "ready", "sleep"})});
  REQUIRE(fixture.RunUntilStarted(1));
  const pid_t helper = NumberAfter(fixture.output.ReadUntil("ready\n"), "left ");
  fixture.group.Relay(SIGUSR1);
  CHECK(fixture.output.ReadUntil("s10\n") == Contains("s10\n"));
  CHECK(IsRunning(helper));
  fixture.group.KillNow();
  REQUIRE(fixture.RunToEnd());
}

TEST_CASE("worker_group: suspend stops the whole group and resume continues it") {
  Fixture fixture;
  fixture.group.Start({fixture.Toy(0, {"helper", "say", "ready", "sleep"})});
  REQUIRE(fixture.RunUntilStarted(1));
  const pid_t worker = fixture.All<WorkerStarted>()[0].pid;
  const pid_t helper = NumberAfter(fixture.output.ReadUntil("ready\n"), "left ");
  fixture.group.Suspend();
  CHECK(WaitUntil([&] { return StateOf(worker) == 'T' && StateOf(helper) == 'T'; }));
  fixture.group.Resume();
  CHECK(WaitUntil([&] { return StateOf(worker) == 'S' && StateOf(helper) == 'S'; }));
  fixture.group.KillNow();
  REQUIRE(fixture.RunToEnd());
}

TEST_CASE("worker_group: time spent suspended is no part of the grace") {
  constexpr auto kGrace = 500ms;  // lower bound: the worker ignores SIGTERM
  Fixture fixture;
  fixture.group.Start({fixture.Toy(0, {"ignore", "15", "say", "ready", "sleep"})});
  REQUIRE(fixture.RunUntilStarted(1));
  fixture.output.ReadUntil("ready\n");
  const TimePoint begin = SteadyNow();
  fixture.group.Stop(SIGTERM, kGrace);
  fixture.group.Suspend();
  const TimePoint suspended_at = SteadyNow();
  // The loop does not run meanwhile, as an agent that has stopped itself does not.
  CHECK(WaitUntil([&] { return SteadyNow() > suspended_at + kGrace; }));
  fixture.group.Resume();
  REQUIRE(fixture.RunToEnd());
  CHECK(SteadyNow() >= begin + 2 * kGrace);
}

}  // namespace
}  // namespace ddprun::launcher
