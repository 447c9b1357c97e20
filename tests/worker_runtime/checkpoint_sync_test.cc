// That a checkpoint is on disk when Save returns, as far as a program can tell without a power cut:
// what this process has asked the kernel to write out.
#include <doctest/doctest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "ddp/checkpoint.h"
#include "tests/worker_runtime/checkpoint_testing.h"

namespace {

std::vector<std::string>& Synced() {
  static std::vector<std::string> paths;
  return paths;
}

}  // namespace

// In place of libc's, which does no more.
extern "C" int fsync(int fd) {
  char path[4096] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  if (readlink(link.c_str(), path, sizeof(path) - 1) > 0) Synced().emplace_back(path);
  return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace ddp {
namespace {

TEST_CASE("checkpoint: the file, its name and the names of new directories are written out") {
  Alone alone;
  Model model;
  const std::string root = std::filesystem::canonical(alone.dir.path());
  Checkpoint checkpoint(alone.group.communicator(0), {.directory = root + "/a/b"});
  Synced().clear();
  REQUIRE(checkpoint.Save(State(1), model.Tensors()).ok());
  REQUIRE(Synced().size() == 4);
  // A folder's name is in the one above; the file is written out before it gets its name.
  CHECK(Synced()[0] == root + "/a");
  CHECK(Synced()[1] == root);
  CHECK(Synced()[2].starts_with(root + "/a/b/.checkpoint-000001-step-1.ckpt.tmp-"));
  CHECK(Synced()[3] == root + "/a/b");
  Synced().clear();
  REQUIRE(checkpoint.Save(State(2), model.Tensors()).ok());
  CHECK(Synced().size() == 2);
}

}  // namespace
}  // namespace ddp
