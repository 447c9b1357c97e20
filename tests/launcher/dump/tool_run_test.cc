#include "launcher/dump/tool_run.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "rendezvous/base/unique_fd.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/support/virtual_clock.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using namespace ddprun::testing;

// `during` runs on a thread of its own.
ToolRun Shell(
    const std::string& script,
    const std::function<void(VirtualClock&, TimePoint deadline)>& during = [](auto&, auto) {}) {
  VirtualClock clock;
  const TimePoint deadline = clock.Now() + 60s;
  std::thread other([&] { during(clock, deadline); });
  ToolRun run = RunTool({"/bin/sh", "-c", script}, {"PATH=/usr/bin:/bin", "DDPRUN_DUMP_TEST=1"},
                        deadline, clock);
  other.join();
  return run;
}

// Its time is over when it has made the file `sign`.
ToolRun LateShell(const std::string& script, const std::string& sign) {
  return Shell(script, [&sign](VirtualClock& clock, TimePoint deadline) {
    CHECK(clock.AwaitWaitUntil(deadline));
    CHECK(Eventually([&] { return std::filesystem::exists(sign); }));
    clock.Advance(deadline - clock.Now());
  });
}

TEST_CASE("tool: both streams and the end are told") {
  const ToolRun run = Shell("echo out; echo err >&2; exit 3");
  CHECK(run.out == "out\n");
  CHECK(run.err == "err\n");
  CHECK(run.has_ended);
  CHECK_FALSE(run.is_late);
  CHECK(run.end.exited);
  CHECK(run.end.code == 3);
}

TEST_CASE("tool: one that closes its stderr early is heard to the end of its stdout") {
  const ToolRun run = Shell("exec head -c 200000 /dev/zero 2>&-");
  CHECK(run.out.size() == 200000);
  CHECK_FALSE(run.is_late);
  CHECK(run.has_ended);
}

TEST_CASE("tool: it sees nothing of ours but what it is given") {
  const UniqueFd left(open("/dev/null", O_RDONLY));  // as our starter may leave one
  CHECK(Shell("read x; echo $?; ls /proc/self/fd | wc -l").out == "1\n4\n");  // 0-2, and ls's own
  CHECK(Shell("env | grep -c DDPRUN").out == "1\n");
  CHECK(Shell("cat /proc/self/oom_score_adj").out == "1000\n");
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  signal(SIGPIPE, SIG_IGN);
  const ToolRun run = Shell("grep -E 'SigBlk|SigIgn' /proc/self/status");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  CHECK(run.out == "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

TEST_CASE("tool: one that hangs is killed at the deadline, with what it has started") {
  const TempDir temp;
  const std::string sign = temp.File("sign");
  const ToolRun run = LateShell("echo first; touch " + sign + "; sleep 1000 & sleep 1000", sign);
  CHECK(run.is_late);
  CHECK(run.has_ended);
  CHECK(run.out == "first\n");
  CHECK(Eventually([] { return ProcessesWithEnv("DDPRUN_DUMP_TEST", "1").empty(); }));
}

TEST_CASE("tool: what it leaves behind with its stdout holds nobody up") {
  const ToolRun run = Shell("sleep 1000 & echo done");
  CHECK(run.out == "done\n");
  CHECK_FALSE(run.is_late);
  CHECK(Eventually([] { return ProcessesWithEnv("DDPRUN_DUMP_TEST", "1").empty(); }));
}

TEST_CASE("tool: one that closes its streams and stays is killed at the deadline") {
  const TempDir temp;
  const std::string sign = temp.File("sign");
  const ToolRun run = LateShell("exec >&- 2>&-; touch " + sign + "; exec sleep 1000", sign);
  CHECK(run.is_late);
  CHECK(run.has_ended);
}

TEST_CASE("tool: endless output is cut") {
  const ToolRun out = Shell("yes");
  CHECK(out.is_cut);
  CHECK(out.out.size() == kMaxToolOutput);
  const TempDir temp;
  const std::string sign = temp.File("sign");
  // The pipe has the first of it before the time is over.
  const ToolRun err = LateShell("head -c 9000 /dev/zero >&2; touch " + sign + "; yes >&2", sign);
  CHECK(err.is_late);
  CHECK(err.err.size() == 4096);
}

TEST_CASE("tool: what cannot be executed ends with 127") {
  const TempDir temp;
  const VirtualClock clock;
  const ToolRun run = RunTool({temp.File("none")}, {}, clock.Now() + 60s, clock);
  CHECK(run.end.exited);
  CHECK(run.end.code == 127);
}

}  // namespace
}  // namespace ddprun::launcher
