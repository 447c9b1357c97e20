#include "tests/support/file_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "rendezvous/base/check.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Not below Bazel's TEST_TMPDIR: a socket's path has 107 bytes at most.
std::string TempPattern(const char* suffix) {
  const char* const base = getenv("TMPDIR");
  return (base != nullptr && *base != '\0' ? base : "/tmp") + std::string("/ddprun-t-") + suffix;
}

std::string MakeError(const std::string& pattern) {
  return "make \"" + pattern + "\": " + std::strerror(errno);
}

// The child's TMPDIR. What programs under test leave in it (dumps, logs, notes of killed processes)
// goes with it.
class TempFolder {
 public:
  // Errors are in `error`.
  explicit TempFolder(std::string* error) : path_(TempPattern("XXXXXX")) {
    const std::string pattern = path_;
    if (mkdtemp(path_.data()) != nullptr) return;
    *error = MakeError(pattern);
    path_.clear();
  }
  ~TempFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A file without a name. A pipe would not do: a process that outlives the child may keep it open.
UniqueFd OpenOutput(std::string* error) {
  const std::string pattern = TempPattern("out-XXXXXX");
  std::string path = pattern;
  UniqueFd fd(mkostemp(path.data(), O_CLOEXEC | O_APPEND));
  if (!fd.is_open()) {
    *error = MakeError(pattern);
  } else {
    unlink(path.c_str());
  }
  return fd;
}

void WriteToStdout(const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t written = write(STDOUT_FILENO, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    bytes += written;
    size -= static_cast<size_t>(written);
  }
}

void CopyToStdout(int fd, const std::string& title) {
  std::fflush(stdout);
  char chunk[1 << 16];
  off_t at = 0;
  char last = '\n';
  for (;;) {
    const ssize_t got = pread(fd, chunk, sizeof chunk, at);
    if (got <= 0) break;
    if (at == 0) WriteToStdout(title.data(), title.size());
    WriteToStdout(chunk, static_cast<size_t>(got));
    at += got;
    last = chunk[got - 1];
  }
  // What follows starts a line of its own.
  if (last != '\n') WriteToStdout("\n", 1);
}

struct ChildSetup {
  const HeldSignals& signals;
  pid_t parent;
  UniqueFd& output;
  const std::string& temp_folder;
};

void SetUpChild(const ChildSetup& setup) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != setup.parent) _exit(1);
  setenv("TMPDIR", setup.temp_folder.c_str(), 1);
  if (setup.output.is_open()) {
    dup2(setup.output.get(), STDOUT_FILENO);
    dup2(setup.output.get(), STDERR_FILENO);
    setup.output.Reset();
  }
  // A killed process loses what its streams hold.
  setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  sigprocmask(SIG_SETMASK, &setup.signals.before(), nullptr);
}

void KillGroup(pid_t leader) {
  kill(-leader, SIGKILL);
  // It may have gone to another group.
  kill(leader, SIGKILL);
}

bool HasEnded(pid_t pid) {
  siginfo_t info{};
  const int result = waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT);
  DDP_CHECK(result == 0 || errno == EINTR);
  return result == 0 && info.si_pid == pid;
}

// Until the child has ended, its limit is reached, or a signal wants this program to end.
void WaitForChild(pid_t pid, const HeldSignals& signals, Clock::time_point limit, ProcessEnd* end) {
  while (!HasEnded(pid)) {
    const auto left =
        std::chrono::duration_cast<std::chrono::nanoseconds>(limit - Clock::now()).count();
    if (left <= 0) {
      end->has_reached_limit = true;
      return;
    }
    const timespec wait{static_cast<time_t>(left / 1'000'000'000),
                        static_cast<long>(left % 1'000'000'000)};
    const int number = sigtimedwait(&signals.held(), nullptr, &wait);
    if (number > 0 && number != SIGCHLD) {
      end->stop_signal = number;
      return;
    }
  }
}

}  // namespace

HeldSignals::HeldSignals() {
  // As a parent that ignores it left it, no child could be waited for.
  signal(SIGCHLD, SIG_DFL);
  sigemptyset(&held_);
  sigaddset(&held_, SIGCHLD);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    struct sigaction action {};
    sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&held_, number);
  }
  DDP_CHECK(sigprocmask(SIG_BLOCK, &held_, &before_) == 0);
}

HeldSignals::~HeldSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

ProcessEnd RunInProcess(const HeldSignals& signals, std::chrono::duration<double> limit,
                        bool is_streaming, const std::string& title,
                        const std::function<int()>& body) {
  ProcessEnd end;
  const TempFolder temp(&end.start_error);
  if (!end.start_error.empty()) return end;
  UniqueFd output = is_streaming ? UniqueFd() : OpenOutput(&end.start_error);
  if (!end.start_error.empty()) return end;
  // The child would print it as well.
  std::fflush(stdout);
  const pid_t parent = getpid();
  const Clock::time_point start = Clock::now();
  const pid_t pid = fork();
  DDP_CHECK(pid >= 0);
  if (pid == 0) {
    SetUpChild(
        {.signals = signals, .parent = parent, .output = output, .temp_folder = temp.path()});
    exit(body());
  }
  // Both sides: nobody knows which comes first. EACCES: the child has done it, and more.
  setpgid(pid, pid);

  WaitForChild(pid, signals, start + std::chrono::duration_cast<Clock::duration>(limit), &end);
  // Until it is reaped, its number is nobody else's.
  KillGroup(pid);
  while (waitpid(pid, &end.wait_status, 0) < 0) DDP_CHECK(errno == EINTR);
  end.time = Clock::now() - start;
  if (output.is_open()) CopyToStdout(output.get(), title);
  return end;
}

std::string DescribeWaitStatus(int wait_status) {
  if (WIFSIGNALED(wait_status)) return "ended by " + SignalName(WTERMSIG(wait_status));
  return "exited with status " + std::to_string(WEXITSTATUS(wait_status));
}

std::string SignalName(int number) {
  const char* const name = sigabbrev_np(number);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(number);
}

}  // namespace ddprun::testing
