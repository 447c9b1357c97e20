#include "rendezvous/base/check.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "tests/support/files.h"
#include "tests/support/in_child.h"
#include "tests/support/temp_dir.h"

namespace ddprun {
namespace {

TEST_CASE("check: one that fails is named on stderr, and ends the process by SIGABRT") {
  const testing::TempDir dir;
  const std::string err = dir.File("err");
  const int line = __LINE__ + 5;
  const std::string end = testing::InChild({}, [&] {
    const int fd = open(err.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (dup2(fd, STDERR_FILENO) < 0) return std::string("no stderr");
    std::signal(SIGABRT, SIG_DFL);  // doctest's handler tells of a failed test
    DDP_CHECK(fd < 0);
    return std::string("it went on");
  });
  CHECK(end == "SIGNAL " + std::to_string(SIGABRT));
  CHECK(testing::ReadFile(err) == "CHECK failed: fd < 0 at tests/rendezvous/base/check_test.cc:" +
                                      std::to_string(line) + "\n");
}

TEST_CASE("check: one that holds says nothing, and looks at its condition once") {
  int looks = 0;
  DDP_CHECK(++looks > 0);
  CHECK(looks == 1);
}

}  // namespace
}  // namespace ddprun
