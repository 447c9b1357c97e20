#include "tests/support/runner_fixture/untouched.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace {

int changes = 0;

void CheckSignals() {
  sigset_t blocked;
  CHECK(sigprocmask(SIG_BLOCK, nullptr, &blocked) == 0);
  struct sigaction action {};
  CHECK(sigaction(SIGCHLD, nullptr, &action) == 0);
  CHECK((action.sa_handler == SIG_DFL));
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) {
    CHECK(sigismember(&blocked, number) == 0);
  }
}

void CheckProcess() {
  CHECK(changes == 0);
  CHECK(getpgrp() == getpid());
  CHECK((waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD));
  int is_subreaper = 1;
  CHECK(prctl(PR_GET_CHILD_SUBREAPER, &is_subreaper) == 0);
  CHECK(is_subreaper == 0);
  // Nothing but what was inherited: tests count descriptors. The parent has the output besides.
  const std::string of_parent = "/proc/" + std::to_string(getppid()) + "/fd/";
  int added = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    added += fcntl(fd, F_GETFD) != -1;
    added -= std::filesystem::is_symlink(of_parent + std::to_string(fd));
  }
  CHECK(added == -1);
}

void CheckEnvironment() {
  CHECK(std::filesystem::is_empty(std::getenv("TMPDIR")));
  CHECK(std::getenv("TMPDIR") != std::string(std::getenv("RUNNER_FIXTURE_TMPDIR")));
  for (const char* name : {"XML_OUTPUT_FILE", "TEST_TOTAL_SHARDS", "TESTBRIDGE_TEST_ONLY"}) {
    CHECK(std::getenv(name) == nullptr);
  }
}

}  // namespace

void CheckAndChangeProcess() {
  CheckSignals();
  CheckProcess();
  CheckEnvironment();

  ++changes;
  CHECK((signal(SIGCHLD, SIG_IGN) == SIG_DFL));
  CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
  const rlimit few{64, 64};
  CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
  const rlimit none{0, 0};
  CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
  CHECK(setenv("TMPDIR", "/nowhere", 1) == 0);
  CHECK(setpgid(0, getpgid(getppid())) == 0);
  CHECK(syscall(SYS_close_range, 0, ~0U, 0) == 0);
}
