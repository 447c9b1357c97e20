// The child between clone and exec, held there by files that do not answer.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/fanotify.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/process/process.h"
#include "launcher/process/spawn.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/launcher/process/file_gate.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using namespace ddprun::testing;

std::vector<std::string> DescriptorsOf(pid_t pid) {
  std::vector<std::string> names;
  DIR* const directory = opendir(("/proc/" + std::to_string(pid) + "/fd").c_str());
  if (directory == nullptr) return names;
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  }
  closedir(directory);
  std::sort(names.begin(), names.end());
  return names;
}

bool HasHungUp(int read_end) {
  pollfd polled{read_end, POLLIN, 0};
  return poll(&polled, 1, 0) == 1 && (polled.revents & POLLHUP) != 0;
}

TEST_CASE("child setup: a child that hangs in its exec holds stdio and its error pipe alone") {
  const TempDir temp;
  const auto gate = MakeSlowToyWorker(temp.File("slow"));
  if (gate == nullptr) return SkipTest("fanotify permission events are not available here");
  // One of the agent's own, which would close at the exec, and one that its starter left open.
  int own[2], left[2];
  REQUIRE(pipe2(own, O_CLOEXEC) == 0);
  REQUIRE(pipe(left) == 0);
  int errors[2];
  REQUIRE(pipe2(errors, O_CLOEXEC) == 0);
  const SpawnedChild child(
      {.executable = temp.File("slow"), .argv = {"toy_worker", "sleep"}, .env = TestEnvironment()},
      TestBaseline(), errors[1]);
  REQUIRE(child.pid() > 0);
  close(errors[1]);
  REQUIRE(WaitUntil([&] { return gate->HasVisitor(); }));

  CHECK(DescriptorsOf(child.pid()) == std::vector<std::string>{"0", "1", "2", "3"});
  for (int* const ends : {own, left}) {
    close(ends[1]);
    CHECK(HasHungUp(ends[0]));
    close(ends[0]);
  }
  CHECK_FALSE(HasHungUp(errors[0]));  // it still hangs

  kill(child.pid(), SIGKILL);
  CHECK(WaitUntil([&] { return HasHungUp(errors[0]); }));
  close(errors[0]);
  ReapChild(child.pid());
}

// A /proc, for this process alone, in which nothing is but the score that a child writes on its way
// to the exec, before it restores its signals. Null: not permitted here.
std::unique_ptr<FileGate> HoldTheScore() {
  const std::string score = "/proc/self/oom_score_adj";
  if (unshare(CLONE_NEWNS) != 0 || mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("none", "/proc", "tmpfs", 0, nullptr) != 0 || mkdir("/proc/self", 0755) != 0) {
    return nullptr;
  }
  std::ofstream(score).flush();
  return FileGate::Make(score, FAN_OPEN_PERM);
}

// How a worker ends that gets `signal` between clone and exec.
std::string EndOfChildHitBy(int signal) {
  const auto gate = HoldTheScore();
  if (gate == nullptr) return "not permitted";
  ProcessBaseline baseline = TestBaseline();
  baseline.oom_scores = {0, 0};
  const UniqueFd errors(open("/dev/null", O_WRONLY | O_CLOEXEC));
  const SpawnedChild child(
      {.executable = ToyWorker(), .argv = {"toy_worker", "exit", "7"}, .env = TestEnvironment()},
      baseline, errors.get());
  if (child.pid() < 0) return "not started";
  if (!WaitUntil([&] { return gate->HasVisitor(); })) return "the score is not written";
  kill(child.pid(), signal);
  gate->LetPass();
  int status = 0;
  if (waitpid(child.pid(), &status, 0) != child.pid()) return "not waited for";
  return WIFEXITED(status) ? "exited " + std::to_string(WEXITSTATUS(status))
                           : "killed by " + std::to_string(WTERMSIG(status));
}

// The same in a process of its own, whose /proc nobody else misses.
std::string EndOfWorkerHitBy(int signal) {
  TestBaseline();  // from the true /proc
  CapturePipe answer;
  const pid_t pid = fork();
  if (pid == 0) {
    const std::string text = EndOfChildHitBy(signal);
    _exit(write(answer.write_end(), text.data(), text.size()) < 0);
  }
  const std::string text = answer.ReadAll();
  ReapChild(pid);
  return text;
}

// Until its exec a child shares the agent's memory, and kernels before 5.16 kill all who share the
// memory of a process that dumps core.
TEST_CASE("child setup: a signal that would dump core before the exec is no death by that signal") {
  const std::string end = EndOfWorkerHitBy(SIGQUIT);
  if (end == "not permitted") return SkipTest("mounts or fanotify are not permitted here");
  CHECK(end == "exited 131");
  CHECK(EndOfWorkerHitBy(SIGABRT) == "exited 131");
  CHECK(EndOfWorkerHitBy(SIGTERM) == "killed by 15");  // no core: what it always does
  CHECK(EndOfWorkerHitBy(SIGWINCH) == "exited 7");     // ignored: the program runs
}

}  // namespace
}  // namespace ddprun::launcher
