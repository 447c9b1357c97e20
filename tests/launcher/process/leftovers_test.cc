#include "launcher/process/leftovers.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <boost/asio/io_context.hpp>

#include "launcher/process/leftover_watch.h"
#include "launcher/process/process.h"
#include "launcher/process/session_table.h"
#include "launcher/process/spawn.h"
#include "launcher/process/worker_group.h"
#include "rendezvous/base/steady_clock.h"
#include "tests/launcher/process/group_fixture.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using namespace ddprun::testing;
using Fixture = GroupFixture;

const std::string kVariable = std::string(kJobMarkVariable) + "=";

// A sleeping process with the given environment, killed and reaped at the end.
class Sleeper {
 public:
  explicit Sleeper(std::vector<std::string> env) {
    CapturePipe output;
    const SpawnResult result = Spawn({.executable = ToyWorker(),
                                      .argv = {"toy_worker", "say", "ready", "sleep"},
                                      .env = std::move(env),
                                      .stdout_fd = output.write_end()},
                                     TestBaseline());
    REQUIRE(result.ok());
    pid_ = result.pid;
    output.ReadUntil("ready\n");
  }
  ~Sleeper() {
    kill(pid_, SIGKILL);
    ReapChild(pid_);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

TEST_CASE("leftovers: a mark is found as a whole variable and as an outer mark, nothing less") {
  const std::string mark = NewJobMark();
  const LeftoverQuery query{.mark = mark.c_str()};
  const struct {
    std::vector<std::string> env;
    int count;
  } rows[] = {
      {{kVariable + mark}, 1},
      {{"A=1", kVariable + mark, "B=2"}, 1},
      {{kVariable + mark + "/inner"}, 1},
      {{std::string(100'000, 'x') + "=1", kVariable + mark}, 1},   // behind many reads
      {{std::string(4096 - 8, 'x') + "=1", kVariable + mark}, 1},  // across two reads
      {{}, 0},
      {{kVariable + mark + "x"}, 0},
      {{kVariable + mark.substr(1)}, 0},
      {{kVariable}, 0},
      {{"X" + kVariable + mark}, 0},
      {{"X=" + kVariable + mark}, 0},
  };
  for (const auto& row : rows) {
    const Sleeper sleeper(row.env);
    CHECK(SignalLeftovers(query, 0) == row.count);
  }
}

TEST_CASE("leftovers: sessions and children count without a mark, the spared one never") {
  const Sleeper one({});
  const Sleeper two({});
  SessionTable sessions;
  sessions.Add(one.pid());
  CHECK(SignalLeftovers({.sessions = &sessions}, 0) == 1);
  CHECK(SignalLeftovers({.parent = getpid()}, 0) == 2);
  CHECK(SignalLeftovers({.parent = getpid(), .spare = one.pid()}, 0) == 1);
  const pid_t helpers[] = {one.pid(), two.pid(), 0};
  CHECK(SignalLeftovers({.parent = getpid(), .helpers = helpers}, 0) == 0);
  // Nor what has their session.
  const pid_t session[] = {getsid(one.pid()), getsid(two.pid()), 0};
  CHECK(SignalLeftovers({.parent = getpid(), .helpers = session}, 0) == 0);
}

// A /proc of files, for what cannot be had of real processes.
class FakeProc {
 public:
  void Put(pid_t pid, const std::string& environ, unsigned flags = 0, pid_t parent = 1,
           char state = 'S') {
    const std::string folder = root() + "/" + std::to_string(pid);
    std::filesystem::create_directories(folder);
    WriteFile(folder + "/stat", std::to_string(pid) + " (a) b) " + state + " " +
                                    std::to_string(parent) + " 1 1 0 -1 " + std::to_string(flags) +
                                    " 1 1 1 1 1 1 1 1 20 0 1 0 7 1\n");
    WriteFile(folder + "/environ", environ);
  }
  std::string root() const { return dir_.path().string(); }

 private:
  TempDir dir_;
};

TEST_CASE("leftovers: kernel threads are none, and an environment may lack its last zero") {
  const std::string mark = NewJobMark();
  const std::string ours = kVariable + mark;
  FakeProc proc;
  const std::string root = proc.root();
  const LeftoverQuery query{.mark = mark.c_str(), .proc = root.c_str()};
  constexpr unsigned kKernelThread = 0x00200000;
  proc.Put(101, "A=1");
  proc.Put(102, "");  // in exec
  proc.Put(103, ours, kKernelThread);
  CHECK(SignalLeftovers(query, 0) == 0);
  proc.Put(102, ours);  // overwritten by its process: without the last zero
  CHECK(SignalLeftovers(query, 0) == 1);
  proc.Put(101, "A=1", 0, 77);
  CHECK(SignalLeftovers({.mark = mark.c_str(), .parent = 77, .proc = root.c_str()}, 0) == 2);
}

TEST_CASE(
    "leftovers: a child that exits counts while it has let go of its memory and not of files") {
  FakeProc proc;
  const std::string root = proc.root();
  const std::string mark = NewJobMark();
  constexpr unsigned kExiting = 0x4;  // PF_EXITING
  proc.Put(101, "", kExiting, 77);
  proc.Put(102, "", 0, 77);         // an environment that was always empty
  proc.Put(103, "", kExiting, 78);  // somebody else's child
  CHECK(SignalLeftovers({.mark = mark.c_str(), .exiting_parent = 77, .proc = root.c_str()}, 0) ==
        1);
  CHECK(SignalLeftovers({.mark = mark.c_str(), .proc = root.c_str()}, 0) == 0);
}

TEST_CASE("leftovers: one that ends as it is about to be signalled counts, and is told of") {
  constexpr pid_t kNobody = 4194304;  // above the largest pid
  const std::string mark = NewJobMark();
  FakeProc proc;
  const std::string root = proc.root();
  Vanished vanished;
  const LeftoverQuery query{.mark = mark.c_str(), .vanished = &vanished, .proc = root.c_str()};
  proc.Put(kNobody, kVariable + "other");
  CHECK(SignalLeftovers(query, SIGTERM) == 0);
  CHECK_FALSE(vanished.is_any);
  proc.Put(kNobody, kVariable + mark);
  CHECK(SignalLeftovers(query, SIGTERM) == 1);
  CHECK(vanished.is_ours);
  CHECK_FALSE(vanished.is_any);
  std::filesystem::remove(root + "/" + std::to_string(kNobody) + "/stat");
  CHECK(SignalLeftovers(query, SIGTERM) == 0);
  CHECK(vanished.is_any);
  // So may a child that is dead already.
  vanished = {};
  proc.Put(kNobody, "", 0, 77, 'Z');
  CHECK(SignalLeftovers(query, SIGTERM) == 0);
  CHECK_FALSE(vanished.is_any);
  LeftoverQuery of_parent = query;
  of_parent.exiting_parent = 77;
  CHECK(SignalLeftovers(of_parent, SIGTERM) == 0);
  CHECK(vanished.is_any);
}

TEST_CASE("leftovers: they are looked at ever more rarely, but when their time is over") {
  boost::asio::io_context io;
  const ProcessTable table(io, true, [] {});
  LeftoverWatch leftovers(table, {}, 30s);
  const TimePoint begin = SteadyNow();
  // no limit: figures
  const struct {
    Duration quiet;
    Duration pause;
  } rows[] = {{0ms, 20ms}, {20ms, 20ms}, {40ms, 40ms}, {640ms, 640ms}, {5s, 1s}};
  for (const auto& row : rows) {
    CHECK(leftovers.LookAt(begin + row.quiet, begin) - (begin + row.quiet) == row.pause);
  }
  leftovers.KillAt(begin + 10s);
  CHECK(leftovers.LookAt(begin + 5s, begin) == begin + 6s);
  CHECK(leftovers.LookAt(begin + 9500ms, begin) == begin + 10s);
  CHECK(leftovers.LookAt(begin + 10s, begin) == begin + 10020ms);  // they were killed just now
  CHECK(leftovers.LookAt(begin + 10100ms, begin) == begin + 10200ms);
  leftovers.KillNow();
  CHECK(leftovers.LookAt(begin + 20s, begin + 20s) == begin + 20020ms);
}

TEST_CASE("leftovers: to watch our children takes no walk over /proc, also without a cgroup") {
  boost::asio::io_context io;
  const ProcessTable table(io, true, [] {});
  REQUIRE_FALSE(table.had_children_at_start());
  LeftoverWatch leftovers(table, {.proc = "/none"}, 1h);
  const TimePoint now = SteadyNow();
  CHECK_FALSE(leftovers.AreLeft(now));
  {
    const Sleeper sleeper(TestEnvironment());
    CHECK_FALSE(leftovers.AreLeft(now));  // the walk that tells them to end, here in an empty /proc
    CHECK(leftovers.AreLeft(now));
  }
  CHECK_FALSE(leftovers.AreLeft(now));
}

TEST_CASE("leftovers: a mark is new each time and names the job around it") {
  unsetenv(kJobMarkVariable);
  const std::string first = NewJobMark();
  CHECK(first != NewJobMark());
  CHECK(first.size() == 32);
  setenv(kJobMarkVariable, "outer", 1);
  CHECK(NewJobMark().rfind("outer/", 0) == 0);
  setenv(kJobMarkVariable, std::string(300, 'o').c_str(), 1);
  CHECK(NewJobMark().size() == 32);
  unsetenv(kJobMarkVariable);
}

TEST_CASE("leftovers: helpers of a worker that exited 0 get SIGTERM") {
  for (const bool use_pidfd : {true, false}) {
    Fixture fixture(use_pidfd);
    fixture.group.Start({fixture.Toy(0, {"helper", "helper", "exit", "0"})});
    REQUIRE(fixture.RunToEnd());
    CHECK(fixture.All<WorkerExited>()[0].status.is_success());
    REQUIRE(fixture.All<WorkerNotice>().size() == 1);
    CHECK(fixture.All<WorkerNotice>()[0].text == Contains("has ended and left toy_worker (pid "));
    CHECK_FALSE(IsRunning(NumberAfter(fixture.output.ReadAll(), "left ")));
  }
}

TEST_CASE("leftovers: a helper that ignores SIGTERM is killed after the grace, and that is said") {
  // lower bound: it never ends by itself
  Fixture fixture(true, /*is_spawn_held=*/false, /*leftover_grace=*/100ms);
  fixture.group.Start({fixture.Toy(0, {"stubborn_helper", "exit", "0"})});
  REQUIRE(fixture.RunToEnd());
  const auto ignored = fixture.All<WorkerNotice>();
  REQUIRE(ignored.size() == 2);  // the first says that it is there
  CHECK(ignored[1].text == "a process left by rank 10 (pid " +
                               std::to_string(fixture.All<WorkerStarted>()[0].pid) +
                               ") did not end within 100 ms of SIGTERM: killed");
  CHECK_FALSE(IsRunning(NumberAfter(fixture.output.ReadAll(), "left ")));
}

TEST_CASE("leftovers: the group is empty only when daemons of its workers are gone") {
  for (const char* kind : {"daemon", "stubborn_daemon", "bare_daemon"}) {
    // Of the turn before: a group that begins with children knows its own by their marks, and one
    // of these has none.
    REQUIRE(WaitUntil([] {
      while (waitpid(-1, nullptr, WNOHANG) > 0) {
      }
      return !HasChildren();
    }));
    // lower bound: what ends by itself meanwhile is gone as well
    Fixture fixture(true, /*is_spawn_held=*/false, /*leftover_grace=*/100ms);
    fixture.group.Start({fixture.Toy(0, {kind, "exit", "3"})});
    REQUIRE(fixture.RunToEnd());
    CHECK(fixture.All<WorkerExited>()[0].status.code == 3);
    const pid_t daemon = NumberAfter(fixture.output.ReadAll(), "left ");
    REQUIRE(daemon > 0);
    CHECK_FALSE(IsRunning(daemon));
  }
}

TEST_CASE("leftovers: kill now takes daemons along") {
  Fixture fixture(true, /*is_spawn_held=*/false, /*leftover_grace=*/1h);
  fixture.group.Start({fixture.Toy(0, {"stubborn_daemon", "say", "ready", "sleep"})});
  REQUIRE(fixture.RunUntilStarted(1));
  const pid_t daemon = NumberAfter(fixture.output.ReadUntil("ready\n"), "left ");
  fixture.group.KillNow();
  REQUIRE(fixture.RunToEnd());
  CHECK_FALSE(IsRunning(daemon));
}

TEST_CASE("leftovers: an adopted process that ends is reaped while workers run") {
  Fixture fixture;
  fixture.group.Start({fixture.Toy(0, {"daemon", "exit", "0"}), fixture.Toy(1, {"sleep"})});
  REQUIRE(RunUntil(fixture.io, [&] { return fixture.All<WorkerExited>().size() == 1; }));
  const pid_t daemon = NumberAfter(fixture.output.ReadUntil("left "), "left ");
  kill(daemon, SIGKILL);
  CHECK(RunUntil(fixture.io, [&] { return StateOf(daemon) == '-'; }));
  fixture.group.KillNow();
  REQUIRE(fixture.RunToEnd());
}

TEST_CASE("leftovers: a job that began with children of its own does not kill them") {
  // As after `sleep 100 & exec ddprun ...`.
  const Sleeper stranger(TestEnvironment());
  Fixture fixture;
  fixture.group.Start({fixture.Toy(0, {"daemon", "exit", "0"})});
  REQUIRE(fixture.RunToEnd());
  CHECK(IsRunning(stranger.pid()));
  CHECK_FALSE(IsRunning(NumberAfter(fixture.output.ReadAll(), "left ")));
}

TEST_CASE("leftovers: killing by mark ends the job's processes and returns") {
  const std::string mark = NewJobMark();
  const SpawnResult result = Spawn({.executable = ToyWorker(),
                                    .argv = {"toy_worker", "ignore", "15", "sleep"},
                                    .env = {kVariable + mark}},
                                   TestBaseline());
  REQUIRE(result.ok());
  CHECK(KillLeftovers(mark, nullptr, 20s));
  CHECK(StateOf(result.pid) == 'Z');  // whoever watches it reaps it
  ReapChild(result.pid);
}

}  // namespace
}  // namespace ddprun::launcher
