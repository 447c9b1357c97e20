#include "launcher/agent/node_identity.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

// Run directories under a runtime directory of the test's own.
struct Fixture {
  testing::TempDir dir;
  Fixture() { setenv("XDG_RUNTIME_DIR", dir.path().c_str(), 1); }
  ~Fixture() { unsetenv("XDG_RUNTIME_DIR"); }
};

TEST_CASE("node identity: two agents of one host differ") {
  CHECK(NewNodeId("host") != NewNodeId("host"));
}

TEST_CASE("node identity: a run's directory is this user's alone and the same each time") {
  const Fixture fixture;
  const std::string first = RunDirectory("job1", 29400);
  REQUIRE_FALSE(first.empty());
  struct stat info {};
  REQUIRE(stat(std::filesystem::path(first).parent_path().c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  CHECK_FALSE(std::filesystem::exists(first));  // only who writes there makes it
  CHECK(RunDirectory("job1", 29400) == first);
  CHECK(RunDirectory("job1", 29401) != first);
}

TEST_CASE("node identity: no run id leaves the directory") {
  const Fixture fixture;
  const std::string hostile = RunDirectory("../../etc/\n", 1);
  CHECK(std::filesystem::path(hostile).lexically_normal() == std::filesystem::path(hostile));
  CHECK(hostile.rfind(fixture.dir.path().string(), 0) == 0);
}

TEST_CASE("node identity: a directory that others can write to is not used") {
  const Fixture fixture;
  const std::string directory = RunDirectory("job1", 1);
  std::filesystem::create_directory(directory);
  REQUIRE(chmod(directory.c_str(), 0777) == 0);
  CHECK(RunDirectory("job1", 1).empty());
}

TEST_CASE("node identity: another user's directory is not used") {
  if (geteuid() != 0) return testing::SkipTest("only root can give a directory away");
  const Fixture fixture;
  const std::string directory = RunDirectory("job1", 1);
  const std::string base = std::filesystem::path(directory).parent_path();
  REQUIRE(chown(base.c_str(), 65534, 65534) == 0);
  CHECK(RunDirectory("job1", 1).empty());
  REQUIRE(chown(base.c_str(), 0, 0) == 0);
  REQUIRE(mkdir(directory.c_str(), 0700) == 0);
  CHECK(RunDirectory("job1", 1) == directory);
  REQUIRE(chown(directory.c_str(), 65534, 65534) == 0);
  CHECK(RunDirectory("job1", 1).empty());
}

TEST_CASE("node identity: a link, a file or a FIFO in its place is not used, nor looked into") {
  const Fixture fixture;
  const std::filesystem::path base = std::filesystem::path(RunDirectory("job1", 1)).parent_path();
  const std::string elsewhere = fixture.dir.File("elsewhere");
  REQUIRE(mkdir(elsewhere.c_str(), 0700) == 0);
  const auto check = [&] {
    CHECK(RunDirectory("job1", 1).empty());
    REQUIRE(unlink(base.c_str()) == 0);
  };
  std::filesystem::remove(base);
  REQUIRE(symlink(elsewhere.c_str(), base.c_str()) == 0);
  check();
  REQUIRE(symlink("/no/such/place", base.c_str()) == 0);
  check();
  std::ofstream(base) << "";
  check();
  REQUIRE(mkfifo(base.c_str(), 0600) == 0);
  check();
  CHECK(std::filesystem::is_empty(elsewhere));
  CHECK_FALSE(RunDirectory("job1", 1).empty());
}

}  // namespace
}  // namespace ddprun::launcher
