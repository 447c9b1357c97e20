// A process that a case has forked, and that comes back from it: it must not speak for the case.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/skip.h"

TEST_CASE("forks: here") {
  const pid_t copy = fork();
  if (copy == 0) {
    ddprun::testing::SkipTest("printed by the copy");
    FAIL_CHECK("the copy fails, and exits with 1");
    return;
  }
  int status = 0;
  REQUIRE(waitpid(copy, &status, 0) == copy);
  _exit(WEXITSTATUS(status));
}
