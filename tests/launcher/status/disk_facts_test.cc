#include "launcher/status/disk_facts.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/in_child.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = 1024 * kMiB;
constexpr int64_t kTiB = 1024 * kGiB;

std::string Told(const DiskSpace& space) {
  const std::optional<Problem> problem = JudgeDisk("/scratch", space);
  if (!problem) return "";
  CHECK(problem->kind == "disk");
  return problem->text;
}

TEST_CASE("disk facts: nearly full is below one percent, with bounds") {
  CHECK(Told({.total_bytes = 500 * kGiB, .free_bytes = 5 * kGiB}) == "");
  CHECK(Told({.total_bytes = 500 * kGiB, .free_bytes = 5 * kGiB - 1}) ==
        "the file system of /scratch is nearly full: 4.9 GiB of 500 GiB are free");
  CHECK(Told({.total_bytes = 500 * kGiB, .free_bytes = 0}) ==
        "the file system of /scratch is full: 0 bytes of 500 GiB are free");
  // 100 MiB at least.
  CHECK(Told({.total_bytes = 2 * kGiB, .free_bytes = 100 * kMiB}) == "");
  CHECK(Told({.total_bytes = 2 * kGiB, .free_bytes = 99 * kMiB}) ==
        "the file system of /scratch is nearly full: 99 MiB of 2 GiB are free");
  // 10 GiB are room enough on a petabyte.
  CHECK(Told({.total_bytes = 1024 * kTiB, .free_bytes = 10 * kGiB}) == "");
  CHECK(Told({.total_bytes = 1024 * kTiB, .free_bytes = 9 * kGiB}) != "");
  // A container's /dev/shm is never as large as that.
  CHECK(Told({.total_bytes = 64 * kMiB, .free_bytes = 60 * kMiB}) == "");
  CHECK(Told({.total_bytes = 64 * kMiB, .free_bytes = 6 * kMiB}) != "");
}

TEST_CASE("disk facts: files may be used up before bytes are") {
  DiskSpace space{.total_bytes = kTiB, .free_bytes = kTiB / 2, .total_files = 500'000};
  space.free_files = 5'000;
  CHECK(Told(space) == "");
  space.free_files = 17;
  CHECK(Told(space) ==
        "the file system of /scratch has room for 17 of 500000 files (inodes), however small they "
        "are");
  space.total_files = 4'000'000'000;
  space.free_files = 10'000;
  CHECK(Told(space) == "");
}

TEST_CASE("disk facts: read-only ones, and those without a size, are no problem") {
  CHECK(Told({.total_bytes = kGiB, .is_read_only = true}) == "");
  CHECK(Told({}) == "");
  CHECK(Told({.total_bytes = kTiB, .free_bytes = kTiB}) == "");
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  CHECK(Told({.total_bytes = kMost, .free_bytes = kMost, .total_files = kMost}) != "");
}

TEST_CASE("disk facts: a path cannot write to the terminal") {
  const auto problem = JudgeDisk("/a\x1b[2J", {.total_bytes = kGiB});
  REQUIRE(problem);
  CHECK(problem->text != Contains("\x1b"));
}

TEST_CASE("disk facts: what is not there has no problem") {
  CHECK(ReadDiskProblems({"/nowhere/at/all", "/proc"}).empty());
}

TEST_CASE("disk facts: a real file system that is full, told once") {
  const testing::TempDir dir;
  const std::string told = testing::InChild({}, [&]() -> std::string {
    const std::string disk = dir.File("disk");
    if (mkdir(disk.c_str(), 0755) != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", disk.c_str(), "tmpfs", 0, "size=4m,nr_inodes=300") != 0) {
      return std::string("SKIP a mount of its own: ") + std::strerror(errno);
    }
    std::string text = std::to_string(ReadDiskProblems({disk}).size());
    testing::WriteFile(disk + "/large", std::string(4 << 20, 'x'));
    mkdir((disk + "/logs").c_str(), 0755);
    for (const Problem& problem : ReadDiskProblems({disk + "/logs", disk})) {
      text += " " + problem.text;
    }
    return text;
  });
  if (told.starts_with("SKIP ")) return testing::SkipTest(told.substr(5));
  CHECK(told ==
        "0 the file system of " + dir.File("disk/logs") + " is full: 0 bytes of 4 MiB are free");
}

}  // namespace
}  // namespace ddprun::launcher
