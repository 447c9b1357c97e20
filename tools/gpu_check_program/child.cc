#include "tools/gpu_check_program/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace ddprun::gpu_check {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxOutput = 1 << 20;
constexpr milliseconds kLook(20);
// Between the signals that end a child. ddprun waits for its workers after the first.
constexpr milliseconds kPatience(1500);
// For what is still in the pipes when the child has ended; a process that it left may hold them.
constexpr milliseconds kRest(500);

[[noreturn]] void Exec(const Command& command, int out, int err) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // where it works
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  for (const auto& [name, value] : command.env) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv;
  for (const std::string& argument : command.argv)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  dprintf(STDERR_FILENO, "start %s: %s\n", argv[0], std::strerror(errno));
  _exit(127);
}

// Appends what there is; false at the end.
bool Drain(int fd, std::string* text) {
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count == 0) return false;
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    text->append(buffer, static_cast<size_t>(count));
    if (text->size() > kMaxOutput) text->erase(0, text->size() - kMaxOutput);
  }
}

class Child {
 public:
  explicit Child(const Command& command) {
    int out[2], err[2];
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) Exec(command, out[1], err[1]);
    if (pid_ < 0) std::abort();
    close(out[1]);
    close(err[1]);
    fds_[0] = out[0];
    fds_[1] = err[0];
    for (int fd : fds_) fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  ~Child() {
    for (int fd : fds_) close(fd);
  }

  void Signal(int signal) { kill(pid_, signal); }
  // Reads for a moment; whether somebody may still write.
  bool Read(Outcome* outcome) {
    pollfd polled[2] = {{is_open_[0] ? fds_[0] : -1, POLLIN, 0},
                        {is_open_[1] ? fds_[1] : -1, POLLIN, 0}};
    poll(polled, 2, static_cast<int>(kLook.count()));
    std::string* texts[2] = {&outcome->out, &outcome->err};
    for (int i = 0; i < 2; ++i) is_open_[i] = is_open_[i] && Drain(fds_[i], texts[i]);
    return is_open_[0] || is_open_[1];
  }
  bool HasEnded(Outcome* outcome) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
    outcome->exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return true;
  }

 private:
  pid_t pid_ = -1;
  int fds_[2] = {-1, -1};
  bool is_open_[2] = {true, true};
};

std::string LineAfter(const std::string& out, const std::string& begin) {
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(begin, 0) == 0) return line.substr(begin.size());
  }
  return "";
}

}  // namespace

Outcome RunUntil(const Command& command, Clock::time_point deadline) {
  const Clock::time_point begin = Clock::now();
  Outcome outcome;
  Child child(command);
  int signals_sent = 0;
  while (!child.HasEnded(&outcome)) {
    child.Read(&outcome);
    if (Clock::now() < deadline + signals_sent * kPatience) continue;
    outcome.is_timed_out = true;
    child.Signal(signals_sent < 2 ? SIGTERM : SIGKILL);
    // A process that hangs inside the driver does not even end by SIGKILL.
    if (++signals_sent > 5) break;
  }
  const Clock::time_point end = Clock::now();
  while (child.Read(&outcome) && Clock::now() < end + kRest) continue;
  outcome.seconds = std::chrono::duration<double>(end - begin).count();
  return outcome;
}

std::optional<double> Outcome::Value(const std::string& name) const {
  const std::string text = LineAfter(out, "value " + name + " ");
  if (text.empty()) return std::nullopt;
  return std::strtod(text.c_str(), nullptr);
}

std::string Outcome::Text(const std::string& name) const {
  return LineAfter(out, "text " + name + " ");
}

std::string Outcome::Complaint() const {
  std::istringstream lines(err);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" \t\r=-") != std::string::npos) last = line;
  }
  const std::string how =
      is_timed_out ? "did not end in time" : "exit code " + std::to_string(exit_code);
  if (last.empty()) return how;
  last = last.substr(0, 500);
  return exit_code == EXIT_FAILURE ? last : how + ": " + last;
}

}  // namespace ddprun::gpu_check
