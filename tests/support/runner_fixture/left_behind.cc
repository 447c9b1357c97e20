// Processes that outlive the test, with its streams.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>

namespace {

void Leave(bool has_own_session) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    if (has_own_session) setsid();
    close(ends[0]);
    close(ends[1]);
    for (;;) pause();
  }
  close(ends[1]);
  // At its end the process is where it will stay.
  char byte;
  CHECK(read(ends[0], &byte, 1) == 0);
  close(ends[0]);
  std::printf("left %d\n", pid);
}

}  // namespace

TEST_CASE("left behind: in the group") { Leave(false); }

TEST_CASE("left behind: in a session of its own") { Leave(true); }
