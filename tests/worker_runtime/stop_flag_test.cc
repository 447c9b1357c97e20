#include "worker_runtime/stop_flag.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstring>
#include <string>

#include "tests/support/files.h"
#include "tests/support/temp_dir.h"
#include "worker_runtime/env_contract.h"

namespace ddp::internal {
namespace {

using ddprun::testing::ReadFile;
using ddprun::testing::TempDir;
using ddprun::testing::WriteFile;

// The bytes of a page with these words.
std::string Page(uint32_t is_requested, uint32_t is_heard) {
  std::string bytes(kStopPageBytes, '\0');
  const StopPage page{is_requested, is_heard};
  std::memcpy(bytes.data(), &page, sizeof page);
  return bytes;
}

TEST_CASE("stop flag: a worker sees the agent's word when it comes, and answers beside it") {
  TempDir dir;
  const std::string path = WriteFile(dir.File("stop"), Page(0, 0));
  const StopFlag worker(path), other(path);
  CHECK(worker.problem() == "");
  CHECK(!worker.IsRequested());
  // The file stays the same one, as it is for an agent that has mapped it.
  std::FILE* agent = std::fopen(path.c_str(), "r+e");
  REQUIRE(agent != nullptr);
  CHECK(std::fwrite(Page(1, 0).data(), 4, 1, agent) == 1);
  std::fclose(agent);
  CHECK(worker.IsRequested());
  CHECK(other.IsRequested());
  CHECK(ReadFile(path) == Page(1, 0));
  worker.MarkHeard();
  CHECK(ReadFile(path) == Page(1, 1));
  CHECK(worker.IsRequested());
}

TEST_CASE("stop flag: without a file it is not set, and nothing is wrong") {
  const StopFlag flag("");
  CHECK(flag.problem() == "");
  CHECK(!flag.IsRequested());
  flag.MarkHeard();
}

TEST_CASE("stop flag: a file of the words alone is enough") {
  TempDir dir;
  const StopFlag flag(WriteFile(dir.File("stop"), Page(1, 0).substr(0, sizeof(StopPage))));
  CHECK(flag.problem() == "");
  CHECK(flag.IsRequested());
}

TEST_CASE("stop flag: a file that cannot be used is named with the reason, and is not set") {
  TempDir dir;
  REQUIRE(mkfifo(dir.File("fifo").c_str(), 0600) == 0);
  const struct {
    std::string path, why;
  } rows[] = {
      {dir.File("absent"), "No such file or directory"},
      {WriteFile(dir.File("short"), Page(1, 0).substr(0, 7)),
       "it has 7 bytes, expected at least 16"},
      {WriteFile(dir.File("empty"), ""), "it has 0 bytes, expected at least 16"},
      {dir.path().string(), "Is a directory"},
      {dir.File("fifo"), "not a regular file"},
  };
  for (const auto& [path, why] : rows) {
    const StopFlag flag(path);
    CHECK(flag.problem() == "map the stop file \"" + path + "\" of DDPRUN_STOP_FILE: " + why +
                                "; this process does not hear when its launcher asks it to stop");
    CHECK(!flag.IsRequested());
    flag.MarkHeard();
  }
}

}  // namespace
}  // namespace ddp::internal
