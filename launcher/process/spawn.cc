#include "launcher/process/spawn.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "launcher/process/child_setup.h"
#include "launcher/process/process.h"
#include "launcher/process/raw_syscall.h"
#include "launcher/process/spawn_error.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/unique_fd.h"

#if defined(__SANITIZE_THREAD__)
// The other name of clone(2)'s wrapper in glibc. The thread sanitizer replaces the usual one and
// takes every child for a fork: then it lets the parent, whose memory it is, start no thread any
// more ("starting new threads after multi-threaded fork") and stops looking at this one.
extern "C" int __clone(int (*run)(void*), void* stack, int flags, void* argument, ...);
constexpr auto kClone = __clone;
#else
constexpr auto kClone = clone;
#endif

namespace ddprun::launcher {
namespace {

// The child runs a dozen system calls and no library code; its deepest frame is below 1 KiB.
constexpr size_t kChildStackBytes = 32 * 1024;

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

bool HasCloseRange() {
  // An empty range asks the question without closing anything; 4 is CLOSE_RANGE_CLOEXEC.
  static const bool answer = syscall(SYS_close_range, ~0U, ~0U, 4) == 0;
  return answer;
}

int HighestOpenFd() {
  int highest = 2;
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 65535;
  while (const dirent* entry = readdir(directory)) {
    highest = std::max(highest, std::atoi(entry->d_name));
  }
  closedir(directory);
  return highest;
}

// Blocks every signal of this thread while it lives: a handler that ran in the child would run on
// the agent's memory.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    const SignalBits all = ~SignalBits{0};
    DDP_CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before_, sizeof(all)) == 0);
  }
  ~AllSignalsBlocked() {
    DDP_CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, sizeof(before_)) == 0);
  }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  SignalBits before_ = 0;
};

// The child's report; nothing when the pipe closed at a successful exec.
std::optional<ChildFailure> ReadFailure(int pipe) {
  ChildFailure failure;
  ssize_t size = 0;
  do {
    size = read(pipe, &failure, sizeof(failure));
  } while (size < 0 && errno == EINTR);
  if (size != static_cast<ssize_t>(sizeof(failure))) return std::nullopt;
  return failure;
}

}  // namespace

SpawnResult Spawn(const SpawnRequest& request, const ProcessBaseline& baseline) {
  DDP_CHECK(!request.argv.empty());
  const std::vector<char*> argv = Pointers(request.argv);
  const std::vector<char*> envp = Pointers(request.env);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return DescribeMachineFailure("pipe", errno);
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);

  ChildPlan plan;
  plan.executable = request.executable.c_str();
  plan.argv = argv.data();
  plan.envp = envp.data();
  plan.stdio[0] = request.stdin_fd;
  plan.stdio[1] = request.stdout_fd;
  plan.stdio[2] = request.stderr_fd;
  plan.error_pipe = write_end.get();
  if (!HasCloseRange()) plan.highest_fd = HighestOpenFd();
  plan.parent = getpid();
  plan.blocked_signals = baseline.blocked_signals;
  plan.ignored_signals = baseline.ignored_signals;
  plan.open_files = baseline.open_files;
  if (baseline.oom_score_adj) {
    plan.oom_score_adj_size = static_cast<size_t>(std::snprintf(
        plan.oom_score_adj, sizeof(plan.oom_score_adj), "%d", *baseline.oom_score_adj));
  }

  const auto stack = std::make_unique_for_overwrite<char[]>(kChildStackBytes);
  // The stack grows down on every machine we build for, and must begin 16-byte aligned.
  const auto top = (reinterpret_cast<uintptr_t>(stack.get()) + kChildStackBytes) & ~uintptr_t{15};
  pid_t pid = -1;
  int error = 0;
  {
    const AllSignalsBlocked blocked;
    // As vfork, which may not be called from a function that returns: the agent's memory is not
    // copied (its size does not matter), and this thread sleeps until exec or exit.
    pid = kClone(RunChild, reinterpret_cast<void*>(top), CLONE_VM | CLONE_VFORK | SIGCHLD, &plan);
    error = errno;
  }
  if (pid < 0) return DescribeMachineFailure("clone", error);
  write_end.Reset();
  const std::optional<ChildFailure> failure = ReadFailure(read_end.get());
  if (failure) {
    ReapChild(pid);
    return DescribeSpawnFailure(request.executable, failure->step, failure->error);
  }
  SpawnResult result;
  result.pid = pid;
  return result;
}

}  // namespace ddprun::launcher
