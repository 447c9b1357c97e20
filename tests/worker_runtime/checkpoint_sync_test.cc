// That a checkpoint is on disk when Save returns, as far as a program can tell without a power cut:
// what this process has asked the kernel to write out.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "ddp/checkpoint.h"
#include "tests/worker_runtime/checkpoint_testing.h"
#include "tests/worker_runtime/fsync_hook.h"

namespace ddp {
namespace {

TEST_CASE("checkpoint: the file, its name and the names of new directories are written out") {
  Alone alone;
  Model model;
  const std::string root = std::filesystem::canonical(alone.dir.path());
  Checkpoint checkpoint(alone.group.communicator(0), {.directory = root + "/a/b"});
  std::vector<std::string> synced;
  OnFsync() = [&](const std::string& path) { synced.push_back(path); };
  REQUIRE(checkpoint.Save(State(1), model.Tensors()).ok());
  REQUIRE(synced.size() == 4);
  // A folder's name is in the one above; the file is written out before it gets its name.
  CHECK(synced[0] == root + "/a");
  CHECK(synced[1] == root);
  CHECK(synced[2].starts_with(root + "/a/b/.checkpoint-000001-step-1.ckpt.tmp-"));
  CHECK(synced[3] == root + "/a/b");
  synced.clear();
  REQUIRE(checkpoint.Save(State(2), model.Tensors()).ok());
  CHECK(synced.size() == 2);
  OnFsync() = nullptr;
}

}  // namespace
}  // namespace ddp
