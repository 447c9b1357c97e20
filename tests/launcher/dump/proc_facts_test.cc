#include "launcher/dump/proc_facts.h"

#include <unistd.h>

#include <csignal>
#include <string>

#include <doctest/doctest.h>

#include "tests/launcher/dump/dump_testing.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using namespace ddprun::testing;

TEST_CASE("proc: where the kernel says a program waits") {
  CHECK(KernelWait(StartStuck("asleep")->pid()).starts_with("in clock_nanosleep"));
  CHECK(KernelWait(StartStuck("lock")->pid()).starts_with("in futex"));
  const std::string pipe = KernelWait(StartStuck("pipe")->pid());
  CAPTURE(pipe);
  CHECK(pipe.starts_with("in read of descriptor "));
  CHECK(pipe == Contains(", pipe:["));
}

TEST_CASE("proc: one that has ended is not alive, before and after it is reaped") {
  auto program = StartStuck("asleep");
  const pid_t pid = program->pid();
  CHECK(IsAlive(ReadProcessStat(pid)));
  CHECK(ReadProcessStat(pid)->start_ticks > 0);
  program->Signal(SIGKILL);
  CHECK(Eventually([&] { return !IsAlive(ReadProcessStat(pid)); }));
  program.reset();
  CHECK_FALSE(ReadProcessStat(pid));
  CHECK_FALSE(IsStoppedOrAboutTo(pid));
  CHECK(KernelWait(pid) == "");
  CHECK(ReadProcLink(pid, "exe") == "");
  CHECK_FALSE(ReadProcFile(pid, "status", 100).ok());
}

TEST_CASE("proc: a stop is seen") {
  const auto program = StartStuck("asleep");
  CHECK_FALSE(IsStoppedOrAboutTo(program->pid()));
  program->Signal(SIGSTOP);
  CHECK(Eventually([&] { return StateLetter(program->pid()) == 'T'; }));
  CHECK(IsStoppedOrAboutTo(program->pid()));
}

TEST_CASE("proc: a variable of an environment") {
  const std::string environ("AB=1\0A=x=y\0B\0C=\0", 16);
  CHECK(VariableIn(environ, "A") == "x=y");
  CHECK(VariableIn(environ, "B") == "");
  CHECK(VariableIn(environ, "C") == "");
  CHECK(VariableIn("", "A") == "");
}

TEST_CASE("proc: nobody traces us") { CHECK(TracerOf(getpid()) == 0); }

}  // namespace
}  // namespace ddprun::launcher
