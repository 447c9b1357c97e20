#include "worker_runtime/spawn/rank_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "process/clone.h"
#include "process/failure_text.h"
#include "process/raw_syscall.h"
#include "rendezvous/base/check.h"

namespace ddp::internal {
namespace {

using ddprun::KernelSigaction;
using ddprun::RawSyscall;
using ddprun::SignalBits;

constexpr char kProgram[] = "/proc/self/exe";  // in the child: its own, which is the same

struct ChildPlan {
  char* const* argv = nullptr;
  char* const* envp = nullptr;
  int pipe = -1;  // stays open over the exec
  pid_t caller = 0;
  SignalBits blocked_signals = 0;
  // Written by the child, before it ends, when a step fails.
  const char* failed_step = nullptr;
  long result = 0;  // -errno
};

// A handler of the caller would run in its memory, so there is none when the signals come back. An
// exec does the same, and leaves what is ignored ignored.
DDPRUN_RAW long ResetHandlers() {
  for (int signal = 1; signal <= ddprun::kLastSignal; ++signal) {
    if (signal == SIGKILL || signal == SIGSTOP) continue;
    KernelSigaction action;
    long result = RawSyscall(SYS_rt_sigaction, signal, nullptr, &action, sizeof(SignalBits));
    if (result < 0) return result;
    if (action.handler == reinterpret_cast<void*>(SIG_IGN)) continue;
    action.handler = reinterpret_cast<void*>(SIG_DFL);
    action.flags = 0;
    action.restorer = nullptr;
    action.mask = 0;
    result = RawSyscall(SYS_rt_sigaction, signal, &action, nullptr, sizeof(SignalBits));
    if (result < 0) return result;
  }
  return 0;
}

DDPRUN_RAW int Fail(ChildPlan& plan, const char* step, long result) {
  plan.failed_step = step;
  plan.result = result;
  return 127;
}

// From clone to exec, in the caller's memory, while its thread sleeps (CLONE_VFORK).
DDPRUN_RAW int RunChild(void* argument) {
  ChildPlan& plan = *static_cast<ChildPlan*>(argument);
  long result = RawSyscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (result < 0) return Fail(plan, "prctl(PR_SET_PDEATHSIG)", result);
  // The caller may have died before the line above took effect.
  if (RawSyscall(SYS_getppid) != plan.caller) return Fail(plan, "getppid", -ESRCH);
  result = RawSyscall(SYS_fcntl, plan.pipe, F_SETFD, 0);
  if (result < 0) return Fail(plan, "fcntl", result);
  result = ResetHandlers();
  if (result < 0) return Fail(plan, "reset signals", result);
  result = RawSyscall(SYS_rt_sigprocmask, SIG_SETMASK, &plan.blocked_signals, nullptr,
                      sizeof(SignalBits));
  if (result < 0) return Fail(plan, "restore blocked signals", result);
  result = RawSyscall(SYS_execve, kProgram, plan.argv, plan.envp);
  return Fail(plan, "execve(\"/proc/self/exe\")", result);
}

absl::Status SystemFailure(const std::string& operation, int error) {
  const std::string text = ddprun::FailureText(operation, error);
  switch (error) {
    case EAGAIN:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case E2BIG:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::Status(absl::ErrnoToStatusCode(error), text);
  }
}

std::vector<std::string> Environment(const Variables& variables) {
  std::vector<std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const bool is_replaced = std::any_of(variables.begin(), variables.end(),
                                         [name](const auto& own) { return own.first == name; });
    if (!is_replaced) environment.emplace_back(text);
  }
  for (const auto& [name, value] : variables) {
    if (!value.empty()) environment.push_back(absl::StrCat(name, "=", value));
  }
  return environment;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

void Await(int pidfd, siginfo_t* info) {
  while (waitid(P_PIDFD, static_cast<id_t>(pidfd), info, WEXITED) != 0) {
    if (errno == EINTR) continue;
    // The kernel has reaped it, as SIGCHLD is ignored, or somebody else has.
    DDP_CHECK(errno == ECHILD);
    info->si_pid = 0;
    return;
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> OwnArguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.empty()) return absl::UnavailableError("read /proc/self/cmdline: is /proc mounted?");
  std::vector<std::string> arguments;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\0', begin), text.size());
    arguments.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return arguments;
}

absl::StatusOr<std::unique_ptr<RankProcess>> RankProcess::Start(
    const std::vector<std::string>& arguments, const Variables& variables, SpawnMark mark) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return SystemFailure("pipe2", errno);
  ddprun::UniqueFd news(ends[0]);
  const ddprun::UniqueFd writer(ends[1]);
  struct stat status {};
  DDP_CHECK(fstat(writer.get(), &status) == 0);
  mark.caller = getpid();
  mark.pipe = writer.get();
  mark.pipe_inode = status.st_ino;
  Variables all = variables;
  all.emplace_back(kSpawnVar, FormatSpawnMark(mark));
  const std::vector<std::string> environment = Environment(all);
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(environment);
  const auto stack = std::make_unique_for_overwrite<char[]>(ddprun::kChildStackBytes);
  ChildPlan plan{
      .argv = argv.data(), .envp = envp.data(), .pipe = writer.get(), .caller = mark.caller};
  int pidfd = -1;
  pid_t pid = -1;
  {
    const ddprun::AllSignalsBlocked blocked;
    plan.blocked_signals = blocked.before();
    pid =
        ddprun::CloneSharingMemory(RunChild, &plan, stack.get(), CLONE_VFORK | CLONE_PIDFD, &pidfd);
  }
  if (pid < 0) return SystemFailure("clone", -pid);
  std::unique_ptr<RankProcess> process(new RankProcess(ddprun::UniqueFd(pidfd), std::move(news)));
  if (plan.failed_step != nullptr) {
    return SystemFailure(plan.failed_step, static_cast<int>(-plan.result));
  }
  return process;
}

RankProcess::~RankProcess() {
  if (is_reaped_) return;
  Signal(SIGKILL);
  Reap();
}

void RankProcess::Signal(int signal) {
  // ESRCH: it has ended.
  (void)syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, nullptr, 0);
}

bool RankProcess::IsStopped() {
  siginfo_t info{};
  const auto id = static_cast<id_t>(pidfd_.get());
  return waitid(P_PIDFD, id, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

ddprun::ExitStatus RankProcess::Reap() {
  siginfo_t info{};
  Await(pidfd_.get(), &info);
  is_reaped_ = true;
  if (info.si_pid == 0) return ddprun::ExitStatus{.is_unknown = true};
  return ddprun::DecodeWaitInfo(info.si_code, info.si_status);
}

RankNews RankProcess::News() {
  std::string text;
  char chunk[4096];
  // As much as a pipe holds: a process that the rank has left behind might write on.
  for (int i = 0; i < 16; ++i) {
    const ssize_t size = read(news_.get(), chunk, sizeof(chunk));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    text.append(chunk, static_cast<size_t>(size));
  }
  return ParseRankNews(text);
}

}  // namespace ddp::internal
