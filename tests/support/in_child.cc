#include "tests/support/in_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "rendezvous/base/check.h"

namespace ddprun::testing {
namespace {

constexpr int kReturned = 42;

[[noreturn]] void RunChild(const std::map<std::string, std::string>& env,
                           const std::function<std::string()>& body, int fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const auto& [name, value] : env) {
    if (value.empty()) {
      unsetenv(name.c_str());
    } else {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  const std::string text = body();
  DDP_CHECK(write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  // No exit handlers: those of the libraries that the body has opened are not under test.
  _exit(kReturned);
}

// Reads to the end of file; false at the deadline.
bool ReadAll(int fd, std::chrono::steady_clock::time_point deadline, std::string* text) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd polled{fd, POLLIN, 0};
    const int ready = left.count() > 0 ? poll(&polled, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    char chunk[4096];
    const ssize_t got = read(fd, chunk, sizeof chunk);
    if (got <= 0) return true;
    text->append(chunk, static_cast<size_t>(got));
  }
}

}  // namespace

std::string InChild(const std::map<std::string, std::string>& env,
                    const std::function<std::string()>& body, std::chrono::milliseconds patience) {
  int fds[2];
  DDP_CHECK(pipe2(fds, O_CLOEXEC) == 0);
  fflush(stdout);
  const pid_t pid = fork();
  DDP_CHECK(pid >= 0);
  if (pid == 0) RunChild(env, body, fds[1]);
  close(fds[1]);
  std::string text;
  const bool has_ended = ReadAll(fds[0], std::chrono::steady_clock::now() + patience, &text);
  close(fds[0]);
  if (!has_ended) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) DDP_CHECK(errno == EINTR);
  if (!has_ended) return "HUNG";
  if (WIFSIGNALED(status)) return "SIGNAL " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) != kReturned) return "EXIT " + std::to_string(WEXITSTATUS(status));
  return text;
}

}  // namespace ddprun::testing
