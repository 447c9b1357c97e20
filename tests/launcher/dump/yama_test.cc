// Whether the agent's tools may read a worker's stack as a user of no rights, and why they may:
// tried for real where Yama's ptrace_scope is 1; elsewhere both processes may be read.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>

#include <doctest/doctest.h>

#include "launcher/dump/proc_facts.h"
#include "launcher/dump/stack_reader.h"
#include "launcher/process/process.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/launcher/dump/dump_testing.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/support/in_child.h"
#include "tests/support/skip.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using namespace ddprun::testing;

// "read", or what ReadStack said.
std::string Outcome(pid_t pid, const std::string& tool) {
  if (!WaitUntil([&] {
        return ReadProcFile(pid, "comm", 16).value_or("") == "sleep\n" && StateLetter(pid) == 'S';
      })) {
    return "it does not sleep";
  }
  const StackResult result =
      ReadStack(pid, SteadyNow() + 60s, {.path = FolderOfTool(tool), .looks_beside_worker = false});
  kill(pid, SIGKILL);
  ReapChild(pid);
  return result.stack.threads.empty() ? result.problem : "read";
}

std::string ReadWorker(const std::string& tool) {
  // The kernel lets nobody look into a process that has changed its user, but into its children.
  if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) return "setresuid";
  int errors[2];
  if (pipe2(errors, O_CLOEXEC) != 0) return "pipe";
  const SpawnedChild child({.executable = "/usr/bin/sleep", .argv = {"sleep", "1000"}},
                           TestBaseline(), errors[1]);
  close(errors[1]);
  char byte;
  if (read(errors[0], &byte, 1) != 0)
    return "exec";  // closed by the exec, on which its memory is its own
  return Outcome(child.pid(), tool);
}

std::string ReadOther(const std::string& tool) {
  if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) return "setresuid";
  const pid_t pid = fork();
  if (pid == 0) {
    execl("/usr/bin/sleep", "sleep", "1000", nullptr);
    _exit(127);
  }
  return Outcome(pid, tool);
}

std::string Tool() { return FolderOfTool("eu-stack").empty() ? "gdb" : "eu-stack"; }

std::string Scope() { return ReadSmallFile("/proc/sys/kernel/yama/ptrace_scope", 1).value_or("0"); }

TEST_CASE("yama: a worker has allowed its agent's tools to read its stack") {
  if (Scope() > "1") return SkipTest("Yama's ptrace_scope is above 1 here");
  if (FolderOfTool(Tool()).empty()) return SkipTest("there is neither eu-stack nor gdb here");
  CHECK(InChild({}, [] { return ReadWorker(Tool()); }) == "read");
}

TEST_CASE("yama: scope 1 forbids it for a child that has not") {
  if (Scope() != "1") return SkipTest("Yama's ptrace_scope is not 1 here");
  if (FolderOfTool(Tool()).empty()) return SkipTest("there is neither eu-stack nor gdb here");
  CHECK(InChild({}, [] { return ReadOther(Tool()); }) ==
        "stack: not permitted (ptrace: Operation not permitted); kernel.yama.ptrace_scope is 1, 0 "
        "or root would permit it");
}

}  // namespace
}  // namespace ddprun::launcher
