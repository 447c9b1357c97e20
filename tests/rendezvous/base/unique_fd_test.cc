#include "rendezvous/base/unique_fd.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include <doctest/doctest.h>

namespace ddprun {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) != -1; }

TEST_CASE("unique_fd: the owner closes, a moved-from one does not") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  UniqueFd write_end(ends[1]);
  {
    UniqueFd first(ends[0]);
    UniqueFd second(std::move(first));
    CHECK_FALSE(first.is_open());
    CHECK(IsOpen(second.get()));
  }
  CHECK_FALSE(IsOpen(ends[0]));
  CHECK(IsOpen(write_end.get()));
}

TEST_CASE("unique_fd: closing leaves errno alone") {
  UniqueFd closed_elsewhere(open("/dev/null", O_RDONLY | O_CLOEXEC));
  close(closed_elsewhere.get());
  errno = ENOENT;
  closed_elsewhere.Reset();
  CHECK(errno == ENOENT);
}

}  // namespace
}  // namespace ddprun
