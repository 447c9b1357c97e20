#include "worker_runtime/comm/refused.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/contains.h"

namespace ddp::internal {
namespace {

using ddprun::testing::Contains;

TEST_CASE(
    "refused: a limit that is reached is named with its value, and other errors are not one") {
  rlimit files{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
  const absl::Status full = Refused("socket for this node's ranks", EMFILE);
  CHECK(absl::IsResourceExhausted(full));
  CHECK(full.message() ==
        absl::StrCat("socket for this node's ranks: Too many open files (EMFILE): this process may "
                     "have ",
                     files.rlim_cur, " (ulimit -n)"));
  CHECK(absl::IsResourceExhausted(Refused("memfd_create", ENFILE)));
  CHECK(Refused("memfd_create", ENFILE).message() == Contains("fs.file-max"));
  CHECK(absl::IsResourceExhausted(Refused("map", ENOMEM)));
  CHECK(absl::IsResourceExhausted(Refused("fallocate", ENOSPC)));
  CHECK(absl::IsInternal(Refused("bind", EACCES)));
  CHECK(Refused("bind", EACCES).message() == "bind: Permission denied (EACCES)");
}

TEST_CASE("refused: no thread and no memory are limits, too") {
  CHECK(absl::IsResourceExhausted(NoThread("watch")));
  CHECK(NoThread("watch").message() == Contains("watch: there is no thread for it: a limit on"));
  CHECK(absl::IsResourceExhausted(NoMemory("all-reduce")));
}

}  // namespace
}  // namespace ddp::internal
