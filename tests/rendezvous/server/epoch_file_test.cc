#include "rendezvous/server/epoch_file.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

#include "tests/support/temp_dir.h"

namespace ddprun::rendezvous {
namespace {

uint64_t Next(const std::string& directory) {
  const auto epoch = NextEpoch(directory);
  REQUIRE_MESSAGE(epoch.ok(), epoch.status().ToString());
  return epoch->value;
}

TEST_CASE("epoch file: each start counts one up") {
  const testing::TempDir directory;
  const uint64_t first = Next(directory.path());
  CHECK(first > 0);
  CHECK(Next(directory.path()) == first + 1);
  CHECK(Next(directory.path()) == first + 2);
}

TEST_CASE("epoch file: a lost or damaged file still gives a greater epoch") {
  const testing::TempDir directory;
  const std::string path = directory.File("epoch");
  uint64_t last = Next(directory.path());
  std::string intact;
  {
    std::ifstream file(path);
    intact.assign(std::istreambuf_iterator<char>(file), {});
  }
  REQUIRE(intact.size() > 20);
  for (size_t at = 0; at < intact.size(); ++at) {
    std::string flipped = intact;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    std::ofstream(path, std::ios::trunc) << flipped;
    const uint64_t next = Next(directory.path());
    CHECK(next > last);
    last = next;
  }
  for (const size_t size : {size_t{0}, size_t{5}, intact.size() - 1}) {
    std::ofstream(path, std::ios::trunc) << intact.substr(0, size);
    const uint64_t next = Next(directory.path());
    CHECK(next > last);
    last = next;
  }
  std::filesystem::remove(path);
  CHECK(Next(directory.path()) > last);
}

TEST_CASE("epoch file: a missing directory is made, and goes when the job is over") {
  const testing::TempDir directory;
  const std::string run = directory.File("run");
  const uint64_t first = Next(run);
  CHECK(Next(run) == first + 1);
  ForgetEpoch(run);
  CHECK_FALSE(std::filesystem::exists(run));
  CHECK(Next(run) > first + 1);
  std::ofstream(run + "/other") << "x";
  ForgetEpoch(run);
  CHECK(std::filesystem::exists(run + "/other"));
  CHECK_FALSE(std::filesystem::exists(run + "/epoch"));
}

TEST_CASE("epoch file: a directory that cannot be made is an error that names the file") {
  const auto epoch = NextEpoch("/nonexistent/run");
  REQUIRE_FALSE(epoch.ok());
  CHECK(epoch.status().message().find("/nonexistent/run/epoch") != std::string::npos);
}

}  // namespace
}  // namespace ddprun::rendezvous
