#include <doctest/doctest.h>
#include <unistd.h>

TEST_CASE("hangs elsewhere: in its parent's process group") {
  REQUIRE(setpgid(0, getpgid(getppid())) == 0);
  for (;;) pause();
}
