#include "launcher/check/check_child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
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

constexpr size_t kMaxText = 1 << 20;
// A killed process ends at once, unless it hangs inside the kernel: then it is left behind.
constexpr milliseconds kPatienceAfterKill{1000};

std::vector<char*> Pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// In the child: only async-signal-safe calls on memory prepared before.
[[noreturn]] void Become(char* const* argv, char* const* environment, int pipe, pid_t parent,
                         const ChildProgram& program) {
  if (program.end_signal != 0) prctl(PR_SET_PDEATHSIG, program.end_signal);
  if (getppid() != parent) _exit(kExitBug);
  // dup2 of a descriptor onto itself would leave it close-on-exec.
  if (pipe == STDOUT_FILENO) {
    fcntl(pipe, F_SETFD, 0);
  } else {
    dup2(pipe, STDOUT_FILENO);
  }
  if (program.keeps_stderr) dup2(STDOUT_FILENO, STDERR_FILENO);
  execve(argv[0], argv, environment);
  _exit(kExitNotFound);
}

// Until the other end is closed; false at the deadline.
bool ReadAll(int fd, TimePoint deadline, std::string& text) {
  char buffer[4096];
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - SteadyNow()).count();
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = poll(&waiting, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    const size_t room = kMaxText - text.size();
    text.append(buffer, std::min(static_cast<size_t>(count), room));
  }
}

// How it ended; none: it has not, or whoever started us has SIGCHLD ignored.
std::optional<ExitStatus> Reap(pid_t pid, TimePoint deadline) {
  for (;;) {
    siginfo_t info{};
    const int result = waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG);
    if (result < 0 && errno == ECHILD) return std::nullopt;
    if (result == 0 && info.si_pid == pid) return DecodeWaitInfo(info.si_code, info.si_status);
    if (SteadyNow() >= deadline) return std::nullopt;
    poll(nullptr, 0, 1);
  }
}

}  // namespace

ChildEnd RunChild(const ChildProgram& program) {
  const TimePoint deadline = SteadyNow() + program.limit;
  const std::vector<char*> argv = Pointers(program.argv);
  const std::vector<char*> environment = Pointers(program.environment);
  ChildEnd end;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    end.fault = absl::StrCat("could not be started: pipe: ", std::strerror(errno));
    return end;
  }
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    end.fault = absl::StrCat("could not be started: fork: ", std::strerror(errno));
    return end;
  }
  if (pid == 0) Become(argv.data(), environment.data(), write_end.get(), parent, program);
  write_end.Reset();
  std::optional<ExitStatus> status;
  if (ReadAll(read_end.get(), deadline, end.text)) status = Reap(pid, deadline);
  if (!status) {
    kill(pid, SIGKILL);
    Reap(pid, SteadyNow() + kPatienceAfterKill);
    end.fault = absl::StrCat("did not end within ",
                             std::chrono::duration<double>(program.limit).count(), " s");
    return end;
  }
  end.exit_code = ExitCodeOf(*status);
  if (!status->exited) end.fault = "was " + ToString(*status);
  return end;
}

}  // namespace ddprun::launcher
