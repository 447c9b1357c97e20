// mark_worker FILE [exit]: appends "<rank> <restart count> <pid> <CLOCK_MONOTONIC ns>" to FILE,
// then waits to be killed, or exits at once.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char** argv) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (argc < 2) return 2;
  const char* rank = getenv("RANK");
  const char* count = getenv("TORCHELASTIC_RESTART_COUNT");
  char line[128];
  const int size =
      snprintf(line, sizeof line, "%s %s %d %lld\n", rank ? rank : "-", count ? count : "0",
               (int)getpid(), (long long)now.tv_sec * 1000000000LL + now.tv_nsec);
  const int file = open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  // One write: lines of several workers do not mix.
  if (file < 0 || write(file, line, (size_t)size) != size) return 1;
  if (argc > 2) return 0;
  // Not for ever: a worker that lost its launcher must not outlive the benchmark by much.
  sleep(120);
  return 0;
}
