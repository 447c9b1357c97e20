// fault_worker FILE: appends "up <rank> <world size> <pid> <parent's pid> <CLOCK_MONOTONIC ns>" to
// FILE, then waits: for SIGTERM, which it tells there likewise ("told ...") before it ends, or for
// SIGUSR1, at which it fails with 41. With FAULT_WORKER_DEFIES it does not end at SIGTERM.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int Mark(const char* path, const char* what) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  char line[160];
  const int size = snprintf(line, sizeof line, "%s %s %s %d %d %lld\n", what, getenv("RANK"),
                            getenv("WORLD_SIZE"), (int)getpid(), (int)getppid(),
                            (long long)now.tv_sec * 1000000000LL + now.tv_nsec);
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  // One write: lines of several workers do not mix.
  return file >= 0 && write(file, line, (size_t)size) == size ? 0 : 1;
}

int main(int argc, char** argv) {
  if (argc != 2 || getenv("RANK") == NULL || getenv("WORLD_SIZE") == NULL) return 2;
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGUSR1);
  sigprocmask(SIG_BLOCK, &signals, NULL);
  if (Mark(argv[1], "up") != 0) return 1;
  const int is_defiant = getenv("FAULT_WORKER_DEFIES") != NULL;
  // Not for ever: a worker that lost its launcher must not outlive the benchmark by much.
  const struct timespec patience = {.tv_sec = 1200, .tv_nsec = 0};
  for (;;) {
    const int signal = sigtimedwait(&signals, NULL, &patience);
    if (signal == SIGUSR1) return 41;
    if (signal != SIGTERM) return 3;
    if (Mark(argv[1], "told") != 0) return 1;
    if (!is_defiant) return 0;
  }
}
