// Leaves a process in its group, says that it is there, and never ends.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

TEST_CASE("hangs: not yet") { CHECK(true); }

TEST_CASE("hangs: here") {
  std::printf("printed before the hang\n");
  if (fork() != 0) {
    std::ofstream(std::getenv("TMPDIR") + std::string("/dump")) << "left behind";
    if (const char* const mark = std::getenv("RUNNER_FIXTURE_MARK")) std::ofstream(mark).flush();
  }
  for (;;) pause();
}
