// hang_worker FILE: a training program of the library in libddp.so: small all-reduces and steps,
// one after the other, until SIGTERM. It writes to FILE what fault_worker does.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ddp/c.h"

static int file = -1;
static char who[96];

// Also in a handler: no call that must not be there.
static int Mark(const char* what) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  char line[192];
  char digits[24];
  int count = 0;
  for (long long ns = (long long)now.tv_sec * 1000000000LL + now.tv_nsec; ns > 0; ns /= 10) {
    digits[count++] = (char)('0' + ns % 10);
  }
  strcpy(line, what);
  strcat(line, who);
  size_t size = strlen(line);
  while (count > 0) line[size++] = digits[--count];
  line[size++] = '\n';
  // One write: lines of several workers do not mix.
  return write(file, line, size) == (ssize_t)size ? 0 : 1;
}

static void OnSigterm(int signal) {
  (void)signal;
  _exit(Mark("told"));
}

int main(int argc, char** argv) {
  if (argc != 2 || getenv("RANK") == NULL || getenv("WORLD_SIZE") == NULL) return 2;
  file = open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  snprintf(who, sizeof who, " %s %s %d %d ", getenv("RANK"), getenv("WORLD_SIZE"), (int)getpid(),
           (int)getppid());
  const struct sigaction action = {.sa_handler = OnSigterm};
  sigaction(SIGTERM, &action, NULL);
  ddp_group* group;
  if (ddp_group_from_env(NULL, &group) != DDP_OK) return 4;
  ddp_communicator* ranks = ddp_group_communicator(group);
  float sum = 1;
  // Not for ever: a worker that lost its launcher must not outlive the benchmark by much.
  for (long long step = 1; step < 120000; ++step) {
    if (ddp_complete(ddp_all_reduce(ranks, &sum, 1, DDP_FLOAT32, DDP_AVERAGE, NULL)) != DDP_OK) {
      return 5;
    }
    if (step == 10 && Mark("up") != 0) return 1;
    const struct timespec pause = {.tv_sec = 0, .tv_nsec = 10 * 1000 * 1000};
    nanosleep(&pause, NULL);
  }
  return 3;
}
