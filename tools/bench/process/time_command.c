// time_command COMMAND...: runs it once; prints its wall time in seconds, its exit status, and the
// peak resident memory in KiB of the largest process among it and those it waited for. Starts by
// posix_spawn, so that the size of a benchmark script is not part of the figure.
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

extern char** environ;

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char** argv) {
  if (argc < 2) return fprintf(stderr, "usage: time_command COMMAND...\n"), 2;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  // Its output must not mix with the figures.
  posix_spawn_file_actions_adddup2(&actions, 2, 1);
  const double start = Now();
  pid_t pid;
  const int error = posix_spawnp(&pid, argv[1], &actions, NULL, argv + 1, environ);
  if (error != 0) return fprintf(stderr, "time_command: %s: error %d\n", argv[1], error), 2;
  int status;
  struct rusage usage;
  if (wait4(pid, &status, 0, &usage) != pid) return 2;
  const double wall = Now() - start;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  fprintf(stderr, "time_command: %.9f %d %ld\n", wall, code, usage.ru_maxrss);
  return 0;
}
