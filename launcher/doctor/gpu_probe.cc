#include "launcher/doctor/gpu_probe.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "launcher/process/exit_status.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxOutput = 1 << 20;
// A killed process ends at once, unless it hangs inside the driver's part of the kernel: then it
// is left behind, since nothing can end it.
constexpr milliseconds kPatienceAfterKill{1000};

// In the child: only async-signal-safe calls.
[[noreturn]] void BecomeProbe(char* const* argv, int pipe, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitBug);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  // dup2 of a descriptor onto itself would leave it close-on-exec: hence both branches.
  if (pipe == STDOUT_FILENO) {
    fcntl(pipe, F_SETFD, 0);
  } else {
    dup2(pipe, STDOUT_FILENO);
  }
  // Libraries write to stderr as they like; the user is to see one line of ours.
  if (null >= 0 && null != STDIN_FILENO) dup2(null, STDIN_FILENO);
  if (null >= 0 && null != STDERR_FILENO) dup2(null, STDERR_FILENO);
  execv(argv[0], argv);
  _exit(kExitNotFound);
}

enum class Reading { kClosed, kLate, kTooMuch };

// Reads until the other end is closed.
Reading ReadAll(int fd, TimePoint deadline, const Clock& clock, std::string& text) {
  char buffer[4096];
  while (text.size() < kMaxOutput) {
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = poll(&waiting, 1, PollTimeout(deadline, clock));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0 && clock.Now() < deadline) continue;
    if (ready <= 0) return Reading::kLate;
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Reading::kClosed;
    text.append(buffer, static_cast<size_t>(count));
  }
  return Reading::kTooMuch;
}

// How it ended, as the end of a sentence: empty when SIGCHLD is ignored, as some parents leave it.
// None: it has not.
std::optional<std::string> Reap(pid_t pid, TimePoint deadline, const Clock& clock) {
  for (;;) {
    siginfo_t info{};
    const int result = waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG);
    if (result < 0 && errno == ECHILD) return "";
    if (result == 0 && info.si_pid == pid) {
      return absl::StrCat(": ", ToString(DecodeWaitInfo(info.si_code, info.si_status)));
    }
    if (clock.Now() >= deadline) return std::nullopt;
    poll(nullptr, 0, 1);
  }
}

std::string WhyIncomplete(const std::string& stage, bool is_late, milliseconds deadline,
                          const std::optional<std::string>& ending) {
  const std::string who = stage.empty() ? "the GPU probe" : stage;
  if (is_late) {
    return absl::StrCat(who, " did not answer in ", static_cast<double>(deadline.count()) / 1000.0,
                        " s", ending ? "" : ", and its process cannot be killed");
  }
  return absl::StrCat(who, stage.empty() ? " ended early" : " ended the process that asked it",
                      ending.value_or(""));
}

GpuReport NotStarted(const char* what) {
  return {.interrupted =
              absl::StrCat("the GPU probe cannot be started: ", what, ": ", std::strerror(errno))};
}

}  // namespace

GpuReport RunProbe(const std::vector<std::string>& argv, milliseconds deadline,
                   const Clock& clock) {
  const TimePoint end = clock.Now() + deadline;
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return NotStarted("pipe");
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return NotStarted("fork");
  if (pid == 0) BecomeProbe(words.data(), write_end.get(), parent);
  write_end.Reset();

  std::string text;
  const Reading reading = ReadAll(read_end.get(), end, clock, text);
  // Its pipe is closed: it is about to end, or has something else in mind.
  std::optional<std::string> ending;
  if (reading == Reading::kClosed) ending = Reap(pid, end, clock);
  if (!ending) {
    kill(pid, SIGKILL);
    ending = Reap(pid, clock.Now() + kPatienceAfterKill, clock);
  }
  GpuReport report = ParseProbeLines(text);
  if (!report.is_complete) {
    report.interrupted = WhyIncomplete(report.stage, reading == Reading::kLate, deadline, ending);
  }
  return report;
}

GpuReport ProbeGpus(const std::string& scope) {
  return RunProbe({"/proc/self/exe", kProbeArgument, scope}, kProbeDeadline, SteadyClock());
}

}  // namespace ddprun::launcher
