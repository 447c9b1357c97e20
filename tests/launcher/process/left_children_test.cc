#include "launcher/process/left_children.h"

#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/support/files.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using testing::Subprocess;

constexpr TimePoint kStart = TimePoint(100s);

TEST_CASE("left children: the line names the process, its rank and the option") {
  const LeftChild shell{.pid = 71, .name = "sh", .rank = 3};
  CHECK(LeftChildrenText({shell}, 0s) ==
        "rank 3 has ended and left sh (pid 71) running: it is ended with this node's workers; "
        "--keep-children=SECONDS gives it time");
  CHECK(LeftChildrenText({shell}, 60s) ==
        "rank 3 has ended and left sh (pid 71) running: it has 60 s to end (--keep-children)");
  const LeftChild trainer{.pid = 72, .name = "python", .rank = 3, .has_gpu = true};
  CHECK(LeftChildrenText({trainer}, 60s) ==
        "rank 3 has ended and left python (pid 72) running: ending it, as it has a GPU open, in "
        "spite of --keep-children");
}

TEST_CASE("left children: of many some are named, and all ranks") {
  std::vector<LeftChild> many;
  for (const int pid : {71, 72, 73, 74, 75}) {
    many.push_back({.pid = pid, .name = "sh", .rank = pid % 2});
  }
  CHECK(LeftChildrenText(many, 0s) ==
        "ranks 0, 1 have ended and left sh (pid 71), sh (pid 72), sh (pid 73) and 2 more running: "
        "they are ended with this node's workers; --keep-children=SECONDS gives them time");
  many.resize(1);
  many[0].rank = -1;
  CHECK(LeftChildrenText(many, 0s) ==
        "a worker has ended and left sh (pid 71) running: it is ended with this node's workers; "
        "--keep-children=SECONDS gives it time");
}

// A process that a worker of `rank` has left, with files of these names open.
struct Left {
  explicit Left(const std::string& rank, const std::string& mark = "left-children-test")
      : process({"/bin/sleep", "600"}, {.env = {{"RANK", rank}, {kJobMarkVariable, mark}}}) {
    // Before its exec it has our environment, and within it for a moment its own name and none.
    CHECK(testing::Eventually([&] {
      const std::string folder = "/proc/" + std::to_string(process.pid());
      return testing::ReadFile(folder + "/environ").find(mark) != std::string::npos;
    }));
  }
  Subprocess process;
};

std::vector<std::string> Look(LeftChildren& children, TimePoint now,
                              const std::set<pid_t>& living = {}) {
  return children.Look(now, {.mark = "left-children-test"}, living);
}

TEST_CASE("left children: each is told of once, a moment after its worker has ended") {
  LeftChildren children(60s, 5s);
  CHECK(children.next_at() == TimePoint::max());
  children.WorkerEnded(kStart);
  const Left left("3");
  // A living worker and what it has started, whatever rank that says it has.
  const Left other("3");
  const std::set<pid_t> living = {other.process.pid()};
  CHECK(children.next_at() == kStart + LeftChildren::kSettle);
  CHECK(Look(children, kStart, living).empty());
  const std::vector<std::string> lines = Look(children, kStart + LeftChildren::kSettle, living);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].starts_with("rank 3 has ended and left "));
  CHECK(children.next_at() > kStart);
  CHECK(Look(children, children.next_at(), living).empty());
  // Of the same rank: nothing new.
  children.WorkerEnded(kStart + 9s);
  CHECK(Look(children, kStart + 10s).empty());
  const Left another("4");
  CHECK(Look(children, kStart + 11s).size() == 1);
  // Those that are left when the time is over.
  CHECK(children.next_at() == kStart + 12s);
  const std::vector<std::string> over = Look(children, kStart + 69s);
  REQUIRE(over.size() == 1);
  CHECK(over[0].ends_with(" had not ended within 60 s (--keep-children): ending them now"));
  CHECK(children.next_at() == TimePoint::max());
}

TEST_CASE("left children: the end of a second worker puts off no look for the first one's") {
  LeftChildren children(0s, 5s);
  children.WorkerEnded(kStart);
  children.WorkerEnded(kStart + 60ms);  // no limit: pure
  CHECK(children.next_at() == kStart + LeftChildren::kSettle);
  const Left left("3");
  CHECK(Look(children, children.next_at()).size() == 1);
  CHECK(children.next_at() == kStart + 60ms + LeftChildren::kSettle);  // no limit: pure
  CHECK(Look(children, children.next_at()).empty());
}

TEST_CASE("left children: who has gone is not told of, and nobody is looked for again") {
  LeftChildren children(60s, 5s);
  children.WorkerEnded(kStart);
  CHECK(Look(children, kStart + 1s).empty());
  CHECK(children.next_at() == TimePoint::max());
}

TEST_CASE("left children: without --keep_children one look is enough") {
  LeftChildren children(0s, 5s);
  CHECK(children.patience() == LeftChildren::kSettle);
  children.WorkerEnded(kStart);
  const Left left("3");
  CHECK(Look(children, kStart + 1s).size() == 1);
  CHECK(children.next_at() == TimePoint::max());
}

// A /proc with `child` alone, which has a GPU open: no machine of ours has one.
std::string ProcWithGpu(const testing::TempDir& dir, pid_t child) {
  const std::string folder = dir.File(std::to_string(child));
  std::filesystem::create_directories(folder + "/fd");
  std::filesystem::create_symlink("/dev/nvidia0", folder + "/fd/7");
  for (const char* name : {"stat", "environ", "comm"}) {
    std::ofstream(folder + "/" + name)
        << std::ifstream("/proc/" + std::to_string(child) + "/" + name).rdbuf();
  }
  return dir.path().string();
}

TEST_CASE("left children: one with a GPU open is ended at once, and killed after the grace") {
  Left left("3");
  testing::TempDir dir;
  const std::string proc = ProcWithGpu(dir, left.process.pid());
  const LeftoverQuery query{.mark = "left-children-test", .proc = proc.c_str()};
  LeftChildren children(60s, 5s);
  children.WorkerEnded(kStart);
  const std::vector<std::string> lines = children.Look(kStart + 1s, query, {});
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].ends_with("in spite of --keep-children"));
  CHECK(left.process.Wait() == 128 + SIGTERM);
}

}  // namespace
}  // namespace ddprun::launcher
