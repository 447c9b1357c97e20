// The first process of a pid namespace: starts a program, gives the pid of one of its workers that
// has ended to a process that is none of the program's business, signals the program, and says
// whether anybody has touched that process.
//
//   pid_taker FILE SIGNAL PROGRAM [ARGUMENT...]
//
// FILE comes to hold the pid, as it is inside. On stdout: "taken" when a process has it, then
// "signal N" or "killed by N", or "untouched" when the program and all that it started have ended.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

namespace {

constexpr int kLimitMs = 60'000;

void Say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

[[noreturn]] void GiveUp(const std::string& what) {
  Say("pid_taker: " + what + ": " + std::strerror(errno));
  std::exit(1);
}

void Pause() { usleep(1000); }

pid_t AwaitPid(const char* path) {
  for (int ms = 0; ms < kLimitMs; ++ms) {
    pid_t pid = 0;
    if (std::ifstream(path) >> pid) return pid;
    Pause();
  }
  GiveUp("no pid came");
}

// A process of a session of its own, which waits for signals and tells of them.
[[noreturn]] void BeForeign() {
  setsid();
  sigset_t all;
  sigfillset(&all);
  for (int signal = 0; sigwait(&all, &signal) == 0;) {
    if (signal == SIGUSR1) _exit(0);
    Say("signal " + std::to_string(signal));
  }
  _exit(1);
}

pid_t Take(pid_t wanted) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  for (int ms = 0; ms < kLimitMs; ++ms) {
    const int last = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
    const std::string text = std::to_string(wanted - 1);
    if (last < 0 || write(last, text.c_str(), text.size()) < 0) GiveUp("set ns_last_pid");
    close(last);
    const pid_t pid = fork();
    if (pid < 0) GiveUp("fork");
    if (pid == 0 && getpid() == wanted) BeForeign();
    if (pid == 0) _exit(0);
    if (pid == wanted) {
      // Until then it is of our session, and who looks for the worker's would not find it.
      for (; getsid(pid) != pid; ++ms) {
        if (ms == kLimitMs) GiveUp("the process does not lead a session");
        Pause();
      }
      sigprocmask(SIG_SETMASK, &before, nullptr);
      return pid;
    }
    waitpid(pid, nullptr, 0);
    Pause();  // the worker is a zombie still, or another process has the number
  }
  GiveUp("the pid does not come free");
}

// Whether we have another child than this one, also by way of orphans.
bool HasOthers(pid_t foreign) {
  std::ifstream children("/proc/self/task/1/children");
  for (pid_t child = 0; children >> child;) {
    if (child != foreign) return true;
  }
  return false;
}

}  // namespace

int main(int, char** argv) {
  const pid_t program = fork();
  if (program < 0) GiveUp("fork");
  if (program == 0) {
    execv(argv[3], argv + 3);
    _exit(127);
  }
  const pid_t foreign = Take(AwaitPid(argv[1]));
  Say("taken");
  if (kill(program, std::atoi(argv[2])) != 0) GiveUp("signal the program");
  for (int ms = 0; ms < kLimitMs && HasOthers(foreign); ++ms) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG | __WALL);
    if (ended == foreign) {
      Say("killed by " + std::to_string(WTERMSIG(status)));
      return 0;
    }
    if (ended <= 0) Pause();
  }
  int status = 0;
  kill(foreign, SIGUSR1);
  if (waitpid(foreign, &status, 0) == foreign && WIFSIGNALED(status)) {
    Say("killed by " + std::to_string(WTERMSIG(status)));
  } else {
    Say(HasOthers(foreign) ? "the program has not ended" : "untouched");
  }
  return 0;
}
