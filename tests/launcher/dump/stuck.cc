// Hangs as its argument says, after "ready" on stdout.
#include <sys/prctl.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <string>
#include <thread>

// Names for the stacks: nothing may be inlined, no call may become a jump.
#define NAMED extern "C" __attribute__((noinline, noclone))

NAMED void train_asleep() {
  const timespec time = {1000, 0};
  nanosleep(&time, nullptr);
  std::puts("awake");
}

NAMED void train_on_lock() {
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_lock lock(mutex);
  changed.wait(lock, [] { return false; });
  std::puts("awake");
}

NAMED void train_on_pipe() {
  int ends[2];
  char byte;
  if (pipe(ends) != 0 || read(ends[0], &byte, 1) < 0) std::puts("pipe");
  std::puts("awake");
}

NAMED void train_busily() {
  volatile bool is_over = false;
  while (!is_over) {
  }
}

int main(int, char** argv) {
  const std::string how = argv[1];
  // Nobody may trace it, nor read its memory: but root.
  if (how == "secretive") prctl(PR_SET_DUMPABLE, 0);
  std::puts("ready");
  std::fflush(stdout);
  std::thread helper([] { pause(); });
  if (how == "lock") train_on_lock();
  if (how == "pipe") train_on_pipe();
  if (how == "busy") train_busily();
  train_asleep();
}
