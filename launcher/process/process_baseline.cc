#include "launcher/process/process_baseline.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>

#include "rendezvous/base/check.h"

namespace ddprun::launcher {
namespace {

constexpr char kOomScorePath[] = "/proc/self/oom_score_adj";
// Far from -1000 ("never"): an agent that itself leaks must still be killable.
constexpr int kAgentOomScore = -500;

bool IsIgnored(int signal) {
  KernelSigaction action{};
  if (syscall(SYS_rt_sigaction, signal, nullptr, &action, sizeof(action.mask)) != 0) return false;
  return action.handler == reinterpret_cast<void*>(SIG_IGN);
}

std::optional<int> ReadOomScore() {
  UniqueFd file(open(kOomScorePath, O_RDONLY | O_CLOEXEC));
  char text[16] = {};
  if (!file.is_open() || read(file.get(), text, sizeof(text) - 1) <= 0) return std::nullopt;
  return std::atoi(text);
}

bool WriteOomScore(int score) {
  UniqueFd file(open(kOomScorePath, O_WRONLY | O_CLOEXEC));
  const std::string text = std::to_string(score);
  return file.is_open() &&
         write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

}  // namespace

ProcessBaseline RecordBaseline() {
  ProcessBaseline baseline;
  DDP_CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, nullptr, &baseline.blocked_signals,
                    sizeof(baseline.blocked_signals)) == 0);
  for (int signal = 1; signal <= kLastSignal; ++signal) {
    if (IsIgnored(signal)) baseline.ignored_signals |= BitOf(signal);
  }
  DDP_CHECK(getrlimit(RLIMIT_NOFILE, &baseline.open_files) == 0);
  DDP_CHECK(getrlimit(RLIMIT_CORE, &baseline.core_size) == 0);
  return baseline;
}

SignalBits BitsOf(const std::vector<int>& signals) {
  SignalBits bits = 0;
  for (const int signal : signals) bits |= BitOf(signal);
  return bits;
}

UniqueFd OpenSignalFd(SignalBits signals) {
  UniqueFd fd(static_cast<int>(
      syscall(SYS_signalfd4, -1, &signals, sizeof(signals), SFD_CLOEXEC | SFD_NONBLOCK)));
  DDP_CHECK(fd.is_open());
  return fd;
}

SignalBits AgentSignals(const ProcessBaseline& baseline, SignalBits more_stop_signals) {
  SignalBits signals = BitOf(SIGINT) | BitOf(SIGTERM) | BitOf(SIGQUIT) | BitOf(SIGUSR1) |
                       BitOf(SIGUSR2) | BitOf(SIGTSTP) | BitOf(SIGCONT);
  if ((baseline.ignored_signals & BitOf(SIGHUP)) == 0) signals |= BitOf(SIGHUP);
  return signals | more_stop_signals;
}

absl::Status PrepareAgentProcess(const ProcessBaseline& baseline, SignalBits more_stop_signals) {
  DDP_CHECK(signal(SIGCHLD, SIG_DFL) != SIG_ERR && signal(SIGPIPE, SIG_IGN) != SIG_ERR);
  const SignalBits blocked = AgentSignals(baseline, more_stop_signals) | BitOf(SIGCHLD);
  DDP_CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &blocked, nullptr, sizeof(blocked)) == 0);
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is fd. Not close-on-exec: workers inherit it like any other stdin.
    if (open("/dev/null", O_RDWR) == fd) continue;  // NOLINT(android-cloexec-open)
    return absl::ErrnoToStatus(errno, "descriptor " + std::to_string(fd) +
                                          " is closed, and /dev/null cannot be opened for it");
  }
  return absl::OkStatus();
}

std::optional<std::vector<int>> OpenDescriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/proc/self/fd"), closedir);
  if (directory == nullptr) return std::nullopt;
  std::vector<int> found;
  while (const dirent* entry = readdir(directory.get())) {
    const bool is_number = entry->d_name[0] != '.';
    const int fd = std::atoi(entry->d_name);
    if (is_number && fd != dirfd(directory.get())) found.push_back(fd);
  }
  return found;
}

DescriptorRoom ReserveDescriptors(int64_t count) {
  rlimit limit{};
  DDP_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  // RLIM_INFINITY is no number of descriptors.
  const rlim_t most = std::numeric_limits<int>::max();
  const auto possible = static_cast<int64_t>(std::min(limit.rlim_cur, most));
  DescriptorRoom room{.limit = possible};
  if (const auto open = OpenDescriptors()) {
    // Those from the limit on were opened under a greater one and take nothing of this.
    room.taken = std::count_if(open->begin(), open->end(), [&](int fd) { return fd < possible; });
  } else if (errno == EMFILE) {
    room.taken = possible;
  }  // without /proc nobody knows
  // The table stays as large when the descriptor is closed. It only saves time: no matter if not.
  UniqueFd(fcntl(0, F_DUPFD_CLOEXEC, static_cast<int>(std::min(room.taken + count, possible)) - 1));
  return room;
}

void LeaveNoCore() {
  rlimit limit{};
  DDP_CHECK(getrlimit(RLIMIT_CORE, &limit) == 0);
  // To a program (core_pattern begins with |) the kernel passes a core whatever the limit is, 0
  // included, but not with a limit of one byte (do_coredump).
  limit = {.rlim_cur = 1, .rlim_max = std::max<rlim_t>(1, limit.rlim_max)};
  if (setrlimit(RLIMIT_CORE, &limit) == 0) return;
  // Only root raises a hard limit of 0. Not done for all: /proc/PID becomes root's, and debuggers
  // of the same user are kept out.
  DDP_CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
}

void ProtectFromOomKiller(ProcessBaseline& baseline) {
  const std::optional<int> before = ReadOomScore();
  if (!before || *before <= kAgentOomScore) return;
  if (WriteOomScore(kAgentOomScore)) baseline.oom_scores = {kAgentOomScore, *before};
}

void RestoreOomProtection(const ProcessBaseline& baseline) {
  // What was allowed once is allowed again; nothing depends on it.
  if (baseline.oom_scores) static_cast<void>(WriteOomScore(baseline.oom_scores->agent));
}

}  // namespace ddprun::launcher
