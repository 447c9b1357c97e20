#include "launcher/agent/health_check.h"

#include <doctest/doctest.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>

#include "launcher/agent/site_command.h"
#include "launcher/process/process.h"
#include "rendezvous/base/steady_clock.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using rendezvous::Health;
using rendezvous::HealthReport;

HealthReport Check(const std::string& command, Duration limit = 60s) {
  boost::asio::io_context io;
  HealthCheck check(
      io, {.argv = ShellArgv(command), .environment = {"PATH=/usr/bin:/bin"}, .limit = limit});
  std::optional<HealthReport> found;
  check.Start([&](const HealthReport& report) { found = report; });
  io.run_for(60s);
  REQUIRE(found.has_value());
  return *found;
}

TEST_CASE("health check: 0 is healthy, 1 is bad, and the last line says why") {
  CHECK(Check("echo one; echo two; echo") == HealthReport{Health::kHealthy, "two"});
  CHECK(Check("echo GPU 3 is lost >&2; exit 1") == HealthReport{Health::kBad, "GPU 3 is lost"});
  CHECK(Check("exit 1") == HealthReport{Health::kBad, ""});
  CHECK(Check("true # a comment") == HealthReport{Health::kHealthy, ""});
  CHECK(Check("printf 'a\\033b'; exit 1").line != Contains("\033"));
}

TEST_CASE("health check: all else is no result") {
  CHECK(Check("echo hm; exit 2") ==
        HealthReport{Health::kUnknown, "its end: exit code 2; its last line: hm"});
  CHECK(Check("/no/such/program").health == Health::kUnknown);
  CHECK(Check("kill -9 $$").line == "its end: killed by signal 9 (SIGKILL)");
  const HealthReport late = Check("echo slow; exec sleep 1000", 1s);
  CHECK(late.health == Health::kUnknown);
  CHECK(late.line == "it did not end within 1 s (--health-timeout); its last line: slow");
  const HealthReport loud = Check("yes");
  CHECK(loud.line == Contains("it wrote more than 256 KiB"));
  CHECK(loud.line.size() <= rendezvous::kMaxHealthLineBytes);
}

// The walk over the agent's children takes each that has ended, but not what somebody waits for.
TEST_CASE("health check: its end is known beside the walk over the agent's children") {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  REQUIRE(pthread_sigmask(SIG_BLOCK, &child, nullptr) == 0);
  boost::asio::io_context io;
  const ProcessTable table(io, /*use_pidfd=*/true, [] {});
  HealthCheck check(io, {.argv = ShellArgv("sleep 1000 & exit 1"),
                         .environment = {"PATH=/usr/bin:/bin"},
                         .limit = 60s});
  for (int i = 0; i < 200; ++i) {
    std::optional<HealthReport> found;
    check.Start([&](const HealthReport& report) { found = report; });
    while (!found && io.run_one_for(60s) > 0) {
    }
    REQUIRE(found == HealthReport{Health::kBad, ""});
  }
  // What it has started in its process group went with it, and is reaped.
  for (const TimePoint end = SteadyNow() + 60s; HasChildren() && SteadyNow() < end;) {
    io.run_one_for(1s);
  }
  CHECK_FALSE(HasChildren());
}

TEST_CASE("health check: one that is stopped tells nothing, and the next one runs") {
  boost::asio::io_context io;
  HealthCheck check(io, {.argv = ShellArgv("test -e /no/such/file || exec sleep 1000"),
                         .environment = {"PATH=/usr/bin:/bin"},
                         .limit = 60s});
  bool has_told = false;
  check.Start([&](const HealthReport&) { has_told = true; });
  check.Stop();
  io.run_for(30s);
  CHECK_FALSE(has_told);
  CHECK(check.is_idle());
}

TEST_CASE("site command: it gets the host and the reason as words, whatever stands in them") {
  const ddprun::testing::TempDir dir;
  std::string said;
  {
    const SiteCommand site("printf '%s|' > " + dir.File("out"), {"PATH=/usr/bin:/bin"},
                           [&](const std::string& text) { said = text; });
    site.Run("node-a", "its \"line\"; $(touch " + dir.File("no") + ")");
  }
  CHECK(ddprun::testing::ReadFile(dir.File("out")) ==
        "node-a|its \"line\"; $(touch " + dir.File("no") + ")|");
  CHECK(said == "--on-bad-node for host node-a has run");
}

TEST_CASE("site command: a failure is told") {
  std::string said;
  {
    const SiteCommand site("echo no rights; false", {"PATH=/usr/bin:/bin"},
                           [&](const std::string& text) { said = text; });
    site.Run("node-a", "why");
  }
  CHECK(said == "warning: --on-bad-node for host node-a failed: exit code 1: no rights");
}

}  // namespace
}  // namespace ddprun::launcher
