#include "launcher/process/step_daemon.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <string>

#include "launcher/process/owner_tag.h"
#include "tests/support/subprocess.h"

namespace ddprun::launcher {
namespace {

std::string NameOf(pid_t pid) {
  std::string name = ReadProcFile("/proc/" + std::to_string(pid) + "/comm");
  name.pop_back();  // the newline
  return name;
}

TEST_CASE("step_daemon: finds the nearest ancestor of a name") {
  CHECK(AncestorNamed(NameOf(getppid())) == getppid());
  CHECK(AncestorNamed("no such name") == 0);
}

TEST_CASE("step_daemon: finds an ancestor whose name looks like the end of a name") {
  const pid_t self = getpid();
  const std::string name = NameOf(self);
  REQUIRE(prctl(PR_SET_NAME, "a) S 1 (b") == 0);
  const pid_t child = fork();
  if (child == 0) _exit(AncestorNamed("a) S 1 (b") == self ? 0 : 1);
  int status = -1;
  CHECK((waitpid(child, &status, 0) == child && status == 0));
  prctl(PR_SET_NAME, name.c_str());
}

TEST_CASE("step_daemon: the end of a process that is no child is told once") {
  // The shell's child, which is ours no more once the shell has ended, or never was.
  testing::Subprocess shell({"/bin/sh", "-c", "sleep 600 & echo $! ; wait"});
  REQUIRE(shell.WaitForOut("\n"));
  const pid_t pid = std::stoi(shell.out());
  boost::asio::io_context io;
  int ends = 0;
  const ProcessWatch watch(io, pid, [&] { ++ends; });
  io.poll();
  CHECK(ends == 0);
  CHECK(kill(pid, SIGKILL) == 0);
  io.restart();
  io.run_for(testing::kPatience);
  CHECK(ends == 1);
}

}  // namespace
}  // namespace ddprun::launcher
