// spawn_loop N COMMAND...: starts the command N times and waits for all: the floor for a launcher.
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char** environ;

int main(int argc, char** argv) {
  if (argc < 3) return fprintf(stderr, "usage: spawn_loop N COMMAND...\n"), 2;
  const int count = atoi(argv[1]);
  int failed = 0;
  for (int i = 0; i < count; ++i) {
    pid_t pid;
    if (posix_spawnp(&pid, argv[2], NULL, NULL, argv + 2, environ) != 0) return 2;
  }
  for (int i = 0; i < count; ++i) {
    int status;
    if (wait(&status) < 0 || status != 0) failed = 1;
  }
  return failed;
}
