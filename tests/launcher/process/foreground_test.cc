#include "launcher/process/foreground.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using testing::Subprocess;

// `sh program` says how it got the signal.
constexpr char kProgram[] = R"(trap 'echo program; exit 3' TERM
mkfifo fifo
exec 9<> fifo
echo ready
while :; do read line <&9; done
)";

// A shell that runs `script`, with the program in its folder.
struct Shell {
  explicit Shell(const std::string& script, const std::string& shell = "/bin/sh") {
    std::ofstream(dir.File("program")) << kProgram;
    process.emplace(std::vector<std::string>{shell, "-c", script},
                    Subprocess::Options{.working_dir = dir.path().string()});
    CHECK(process->WaitForOut("ready\n"));
  }

  testing::TempDir dir;
  std::optional<Subprocess> process;
};

TEST_CASE(
    "foreground: the command of a shell with a trap gets the signal, and then the trap runs") {
  for (const char* path : {"/bin/sh", "/bin/bash"}) {
    CAPTURE(std::string(path));
    Shell shell("trap 'echo trap' TERM; sh program; echo ended with $?", path);
    shell.process->Signal(SIGTERM);
    CHECK(SignalForeground(shell.process->pid(), SIGTERM).size() == 1);
    CHECK_MESSAGE(shell.process->Wait() == 0, shell.process->Describe());
    CHECK(shell.process->out() == "ready\nprogram\ntrap\nended with 3\n");
  }
}

TEST_CASE("foreground: so does the program of a wrapper inside a wrapper") {
  Shell shell(R"(trap 'echo outer' TERM; bash -c 'trap "echo inner" TERM; sh program; :'; :)");
  shell.process->Signal(SIGTERM);
  CHECK(SignalForeground(shell.process->pid(), SIGTERM).size() == 1);
  CHECK_MESSAGE(shell.process->Wait() == 0, shell.process->Describe());
  CHECK(shell.process->out() == "ready\nprogram\ninner\nouter\n");
}

TEST_CASE("foreground: a shell without a trap for that signal is the only one to get it") {
  Shell shell("trap 'echo trap' USR1; sh program; :");
  CHECK(SignalForeground(shell.process->pid(), SIGTERM).empty());
}

TEST_CASE("foreground: a command in the background gets nothing: the trap runs at once") {
  Shell shell("trap 'echo trap; kill $!; wait; exit 0' TERM; sh program & wait; echo waited");
  CHECK(SignalForeground(shell.process->pid(), SIGTERM).empty());
  shell.process->Signal(SIGTERM);
  CHECK_MESSAGE(shell.process->Wait() == 0, shell.process->Describe());
  CHECK(shell.process->out() == "ready\ntrap\nprogram\n");
}

TEST_CASE(
    "foreground: so does a command in the background that handles one of a terminal's signals") {
  Shell shell(
      "trap 'echo trap; kill $!; wait; exit 0' TERM; "
      "python3 -u -c 'import signal; signal.signal(signal.SIGINT, lambda *_: None); "
      "print(\"ready\"); signal.pause()' & wait; echo waited");
  CHECK(SignalForeground(shell.process->pid(), SIGTERM).empty());
  shell.process->Signal(SIGTERM);
  CHECK_MESSAGE(shell.process->Wait() == 0, shell.process->Describe());
}

TEST_CASE("foreground: of a pipeline those get it that catch it") {
  Shell shell("trap 'echo trap' TERM; sh program | cat; echo ended");
  shell.process->Signal(SIGTERM);
  CHECK(SignalForeground(shell.process->pid(), SIGTERM).size() == 1);
  CHECK_MESSAGE(shell.process->Wait() == 0, shell.process->Describe());
  // cat has passed on what the program said last.
  CHECK(shell.process->out() == Contains("program\n"));
  CHECK(shell.process->out() == Contains("ended\n"));
}

TEST_CASE("foreground: a command that catches nothing gets it, where it is alone") {
  Shell shell("trap 'echo trap' TERM; sh -c \"echo ready; exec sleep 600\"; echo ended with $?");
  shell.process->Signal(SIGTERM);
  CHECK(SignalForeground(shell.process->pid(), SIGTERM).size() == 1);
  CHECK_MESSAGE(shell.process->Wait() == 0, shell.process->Describe());
  CHECK(shell.process->out() == "ready\ntrap\nended with 143\n");
}

TEST_CASE("foreground: other programs than shells pass nothing on, and those that have gone") {
  Subprocess program({"/usr/bin/python3", "-c",
                      "import signal, subprocess\n"
                      "signal.signal(signal.SIGTERM, lambda *_: None)\n"
                      "with subprocess.Popen(['cat'], stdin=subprocess.PIPE):\n"
                      "  print('ready', flush=True)\n"
                      "  signal.pause()\n"});
  REQUIRE(program.WaitForOut("ready\n"));
  CHECK(SignalForeground(program.pid(), SIGTERM).empty());
  Subprocess gone({"/bin/true"});
  REQUIRE(gone.Wait() == 0);
  CHECK(SignalForeground(gone.pid(), SIGTERM).empty());
}

}  // namespace
}  // namespace ddprun::launcher
