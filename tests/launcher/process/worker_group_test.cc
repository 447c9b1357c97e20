#include "launcher/process/worker_group.h"

#include <csignal>
#include <string>

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>

#include "launcher/process/leftovers.h"
#include "tests/launcher/process/process_testing.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using namespace ddprun::testing;

// A group, what it reported, and the toy workers' output.
struct Fixture {
  explicit Fixture(bool use_pidfd = true, Duration spawn_delay = Duration(0),
                   Duration leftover_grace = 20s)
      : mark(NewJobMark()),
        group(io,
              {.baseline = TestBaseline(),
               .job_mark = mark,
               .leftover_grace = leftover_grace,
               .use_pidfd = use_pidfd,
               .spawn_delay_for_test = spawn_delay},
              [this](const WorkerEvent& event) { events.push_back(event); }) {}

  WorkerSpec Toy(int local_rank, std::vector<std::string> verbs) {
    WorkerSpec spec;
    spec.local_rank = local_rank;
    spec.rank = 10 + local_rank;
    spec.executable = ToyWorker();
    spec.argv = {"toy_worker"};
    for (std::string& verb : verbs) spec.argv.push_back(std::move(verb));
    spec.env = TestEnvironment({std::string(kJobMarkVariable) + "=" + mark});
    spec.stdout_fd = output.write_end();
    return spec;
  }

  template <typename Event>
  std::vector<Event> All() const {
    std::vector<Event> found;
    for (const WorkerEvent& event : events) {
      if (const Event* match = std::get_if<Event>(&event)) found.push_back(*match);
    }
    return found;
  }
  bool RunToEnd() {
    return RunUntil(io, [this] { return !All<GroupEmpty>().empty(); });
  }
  // Runs until every worker of `count` has started and said `word` that often.
  bool RunUntilStarted(size_t count) {
    return RunUntil(io, [&] { return All<WorkerStarted>().size() == count; });
  }

  boost::asio::io_context io;
  std::string mark;
  CapturePipe output;
  std::vector<WorkerEvent> events;
  WorkerGroup group;
};

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

    fixture.group.Stop(SIGTERM, 300ms);

    REQUIRE(fixture.RunToEnd());
    const auto exits = fixture.All<WorkerExited>();
    REQUIRE(exits.size() == 3);
    for (const WorkerExited& exit : exits) {
      CHECK(exit.status.signal == (exit.pid == deaf ? SIGKILL : SIGTERM));
      CHECK(exit.was_told_to_stop);
    }
    const auto ignored = fixture.All<StopIgnored>();
    REQUIRE(ignored.size() == 1);
    CHECK(ignored[0].local_rank == 2);
    CHECK(ignored[0].text == "rank 12 (pid " + std::to_string(deaf) +
                                 ") did not end within 300 ms of SIGTERM: killed");
  }
}

}  // namespace
}  // namespace ddprun::launcher
