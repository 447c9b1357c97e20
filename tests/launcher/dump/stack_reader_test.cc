#include "launcher/dump/stack_reader.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "launcher/dump/proc_facts.h"
#include "rendezvous/base/steady_clock.h"
#include "tests/launcher/dump/dump_testing.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/support/torch_python.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using namespace ddprun::testing;

StackResult Read(pid_t pid, const StackTools& tools, Duration limit = 60s) {
  return ReadStack(pid, SteadyNow() + limit, tools);
}

// Of a folder that has nothing but this tool, so that no other takes its place.
StackTools Only(const std::string& name, const TempDir& temp) {
  std::filesystem::create_symlink(FolderOfTool(name) + "/" + name, temp.File(name));
  return {.path = temp.path(), .looks_beside_worker = false};
}

// It must run on: its thread that sleeps does, and nothing stops or traces it.
void CheckUnharmed(pid_t pid) {
  CHECK_FALSE(IsStoppedOrAboutTo(pid));
  CHECK(TracerOf(pid) == 0);
  CHECK(IsAlive(ReadProcessStat(pid)));
}

// Where it hangs: just after its word that it is about to it may still be writing that, or wait for
// a sanitizer's lock.
StackResult ReadWhenIn(const std::string& name, pid_t pid, const StackTools& tools) {
  StackResult result;
  Eventually([&] {
    result = Read(pid, tools);
    return !result.is_alive || !result.problem.empty() ||
           (WhereText(result.stack).starts_with("in " + name) &&
            ToRankStack(0, result).is_waiting == (name != "train_busily"));
  });
  return result;
}

// The four ways to hang, as `tool` sees them.
void CheckNativeTool(const std::string& tool) {
  for (const char* how : {"asleep", "lock", "pipe", "busy"}) {
    CAPTURE(how);
    const TempDir temp;
    const auto program = StartStuck(how);
    const std::string name = how == std::string("asleep") ? "train_asleep"
                             : how == std::string("lock") ? "train_on_lock"
                             : how == std::string("pipe") ? "train_on_pipe"
                                                          : "train_busily";
    const StackResult result = ReadWhenIn(name, program->pid(), Only(tool, temp));
    CAPTURE(ResultText(result));
    CHECK(result.is_alive);
    CHECK(result.problem == "");
    REQUIRE(result.stack.threads.size() >= 2);  // a sanitizer has one of its own
    CHECK(result.stack.threads[0].tid == program->pid());
    CHECK(WhereText(result.stack).starts_with("in " + name));
    CHECK(ToRankStack(0, result).is_waiting == (how != std::string("busy")));
    CheckUnharmed(program->pid());
  }
}

TEST_CASE("stack: eu-stack names the line of a C++ program, which runs on") {
  if (FolderOfTool("eu-stack").empty()) return SkipTest("there is no eu-stack here (elfutils)");
  CheckNativeTool("eu-stack");
}

TEST_CASE("stack: gdb does likewise") {
  if (FolderOfTool("gdb").empty()) return SkipTest("there is no gdb here");
  CheckNativeTool("gdb");
}

TEST_CASE("stack: py-spy names the line of a Python program") {
  if (FolderOfTool("py-spy").empty()) {
    return SkipTest("there is no py-spy here (DDPRUN_TEST_PY_SPY names one)");
  }
  const TempDir temp, tools;
  const auto program = StartStuckPython(temp.File("train.py"));
  if (program == nullptr) return SkipTest("there is no python3 here");
  const StackResult result = Read(program->pid(), Only("py-spy", tools));
  CAPTURE(ResultText(result));
  CHECK(WhereText(result.stack) == "in train_step (train.py:3)");
  CHECK(IsWaiting(result.stack));
  CHECK(result.problem == "");
  CheckUnharmed(program->pid());
}

TEST_CASE("stack: py-spy is found beside the worker's own Python") {
  if (FolderOfTool("py-spy").empty()) return SkipTest("there is no py-spy here");
  const TempDir temp, venv;
  std::filesystem::create_directory(venv.path() / "bin");
  std::filesystem::create_symlink(FolderOfTool("py-spy") + "/py-spy", venv.path() / "bin/py-spy");
  setenv("VIRTUAL_ENV", venv.path().c_str(), 1);
  const auto program = StartStuckPython(temp.File("train.py"));
  unsetenv("VIRTUAL_ENV");
  if (program == nullptr) return SkipTest("there is no python3 here");
  CHECK(WhereText(Read(program->pid(), {.path = "/none"}).stack) == "in train_step (train.py:3)");
  CHECK(Read(program->pid(), {.path = "/none", .looks_beside_worker = false})
            .problem.starts_with("stack: no tool"));
}

TEST_CASE("stack: PyTorch's worker server is asked where there is no py-spy") {
  const TorchPython& torch = FindTorchPython();
  if (torch.python.empty()) return SkipWithoutTorch();
  const TempDir temp;
  WriteFile(temp.File("train.py"),
            "import time\n"
            "from torch.distributed.elastic.control_plane import worker_main\n"
            "def train_step():\n"
            "    print('ready', flush=True)\n"
            "    time.sleep(1000)\n"
            "with worker_main():\n"
            "    train_step()\n");
  Subprocess program(
      {torch.python, temp.File("train.py")},
      {.env = {{"TORCH_WORKER_SERVER_SOCKET", "socket"}}, .working_dir = temp.path()});
  REQUIRE_MESSAGE(program.WaitForOut("ready"), program.Describe());
  // It has yet to fall asleep.
  REQUIRE(Eventually([&] { return KernelWait(program.pid()).find("sleep") != std::string::npos; }));
  const StackResult result = Read(program.pid(), {.path = "/none", .looks_beside_worker = false});
  CAPTURE(ResultText(result));
  CHECK(WhereText(result.stack) == "in train_step (train.py:5)");
  CHECK(result.stack.tool == kWorkerServer);
}

TEST_CASE("stack: without a tool the kernel's word has to do, and what to install is said") {
  const auto program = StartStuck("lock");
  const StackResult result = Read(program->pid(), {.path = "/none"});
  CHECK(result.stack.threads.empty());
  CHECK(result.kernel_wait.starts_with("in futex"));
  CHECK(result.problem ==
        "stack: no tool to read it: install py-spy (pip install py-spy) for Python, elfutils "
        "(eu-stack) or gdb for other programs");
  const RankStack rank = ToRankStack(3, result);
  CHECK(rank.where.starts_with("in futex"));
  CHECK(rank.is_waiting);
}

TEST_CASE("stack: the kernel tells that a program waits in a call that no tool can name") {
  // eu-stack 0.188, a machine without glibc's symbols, std::condition_variable::wait.
  const Stack stack = ParseStack(
      kEuStack,
      "TID 7:\n#0  0x00007f4ed4ea3e96\n#1  0x00007f4ed4ea65d8 pthread_cond_wait\n#2  0x1 step\n",
      7);
  const RankStack waiting = ToRankStack(0, {.stack = stack, .kernel_wait = "in futex"});
  CHECK(waiting.where == "in step");
  CHECK(waiting.is_waiting);
  CHECK_FALSE(ToRankStack(0, {.stack = stack}).is_waiting);
  const Stack busy = ParseStack(kPySpy, "Thread 7 (active): \"MainThread\"\n    f (a.py:1)\n", 7);
  CHECK_FALSE(ToRankStack(0, {.stack = busy, .kernel_wait = "in sched_yield"}).is_waiting);
}

TEST_CASE("stack: a process that a signal has stopped is told as that, and stays stopped") {
  const auto program = StartStuck("asleep");
  program->Signal(SIGSTOP);
  REQUIRE(Eventually([&] { return ReadProcessStat(program->pid())->state == 'T'; }));
  const StackResult result = Read(program->pid(), {.path = "/none"});
  CHECK(result.is_stopped);
  const RankStack rank = ToRankStack(3, result);
  CHECK(rank.where.starts_with("stopped"));
  CHECK_FALSE(rank.is_waiting);
  CHECK(ReadProcessStat(program->pid())->state == 'T');
}

TEST_CASE("stack: a process that has ended, or ends meanwhile, is told as that") {
  auto program = StartStuck("asleep");
  const pid_t pid = program->pid();
  const TempDir temp;
  const std::string number = std::to_string(pid);
  const StackTools killer = FakeTool(temp.path(), "eu-stack",
                                     "kill -9 " + number + "\nwhile ! grep -q ') Z' /proc/" +
                                         number + "/stat; do :; done\necho 'TID 1:'\n");
  const StackResult meanwhile = Read(pid, killer);
  CHECK_FALSE(meanwhile.is_alive);
  CHECK(meanwhile.problem == "the process has ended");
  program.reset();
  const StackResult gone = Read(pid, killer);
  CHECK_FALSE(gone.is_alive);
  CHECK(ToRankStack(0, gone).unknown_why == "the process has ended");
}

TEST_CASE("stack: a tool that hangs is killed at the deadline, and the stop it left is undone") {
  const auto program = StartStuck("asleep");
  const TempDir temp;
  const StackTools hanging =
      FakeTool(temp.path(), "eu-stack",
               "kill -STOP " + std::to_string(program->pid()) + "\nexec sleep 1000\n");
  const TimePoint began = SteadyNow();
  const StackResult result = Read(program->pid(), hanging, 5s);
  CHECK(SteadyNow() - began < 30s);
  CAPTURE(result.problem);
  CHECK(result.problem.starts_with("stack: eu-stack: no answer in "));
  CHECK(result.kernel_wait.starts_with("in clock_nanosleep"));
  CheckUnharmed(program->pid());
}

TEST_CASE("stack: a real tracer that is killed between attach and detach leaves nothing behind") {
  if (FolderOfTool("gdb").empty()) return SkipTest("there is no gdb here");
  const auto program = StartStuck("asleep");
  const TempDir temp;
  const StackTools hanging =
      FakeTool(temp.path(), "eu-stack",
               "exec " + FolderOfTool("gdb") + "/gdb -nx -batch -p " +
                   std::to_string(program->pid()) + " -ex 'shell sleep 1000'\n");
  const StackResult result = Read(program->pid(), hanging, 3s);
  CAPTURE(result.problem);
  CHECK(result.problem == Contains("eu-stack: no answer in "));
  CheckUnharmed(program->pid());
}

TEST_CASE("stack: a process that stood still before stands still afterwards, whatever is killed") {
  const auto program = StartStuck("asleep");
  program->Signal(SIGSTOP);
  REQUIRE(Eventually([&] { return StateLetter(program->pid()) == 'T'; }));
  const TempDir temp;
  Read(program->pid(), FakeTool(temp.path(), "eu-stack", "exec sleep 1000\n"), 1s);
  CHECK(StateLetter(program->pid()) == 'T');
  for (const char* tool : {"eu-stack", "gdb"}) {
    if (FolderOfTool(tool).empty()) continue;
    CAPTURE(tool);
    const TempDir only;
    const StackResult result = Read(program->pid(), Only(tool, only));
    CAPTURE(ResultText(result));
    CHECK(WhereText(result.stack).starts_with("in train_asleep"));
    CHECK(Eventually([&] { return StateLetter(program->pid()) == 'T'; }, 5s));
  }
}

TEST_CASE("stack: a tool that fails makes room for the next") {
  if (FolderOfTool("gdb").empty()) return SkipTest("there is no gdb here");
  const auto program = StartStuck("asleep");
  const TempDir temp;
  Only("gdb", temp);
  const StackResult result =
      Read(program->pid(), FakeTool(temp.path(), "eu-stack", "echo 'no \x1b[31m' >&2; exit 2\n"));
  CAPTURE(ResultText(result));
  CHECK(result.stack.tool == kGdb);
  CHECK(result.problem == "stack: eu-stack: no \\x1b[31m");
}

TEST_CASE("stack: endless, broken and huge output does no harm") {
  const auto program = StartStuck("asleep");
  for (const char* script : {"yes 'TID 1:'\n", "yes '#0  0x1 f'\n", "head -c 100000 /dev/zero\n",
                             "yes >&2 &\nexec sleep 1000\n"}) {
    CAPTURE(script);
    const TempDir temp;
    const StackResult result = Read(program->pid(), FakeTool(temp.path(), "eu-stack", script), 1s);
    CHECK(result.stack.threads.empty());
    CHECK(result.problem.starts_with("stack: eu-stack: "));
    CHECK(result.problem.size() < 400);
    CheckUnharmed(program->pid());
  }
}

// Not root, which may trace everybody.
TEST_CASE("stack: what may not be traced is told, with what to do") {
  if (geteuid() != 0) return SkipTest("becoming another user needs root");
  const std::string tool = FolderOfTool("eu-stack").empty() ? "gdb" : "eu-stack";
  if (FolderOfTool(tool).empty()) return SkipTest("there is neither eu-stack nor gdb here");
  const StackTools tools = {.path = FolderOfTool(tool)};
  const auto program = StartStuck("asleep");  // root's
  std::string problem = "setresuid";
  // Of this thread alone.
  std::thread([&] {
    if (syscall(SYS_setresuid, 65534, 65534, 65534) == 0) {
      problem = Read(program->pid(), tools).problem;
    }
  }).join();
  CAPTURE(problem);
  CHECK(problem.starts_with("stack: not permitted (ptrace: Operation not permitted); "));
}

}  // namespace
}  // namespace ddprun::launcher
