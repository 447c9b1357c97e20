// The disk that keeps the coordinator's file of the job fails, or does not answer.
#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/faults/apart.h"
#include "tests/faults/bench.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

std::string FailToSync(Bench& bench, const std::string& error, const std::string& text) {
  Job& job = bench.job();
  Apart apart(bench, {{"LD_PRELOAD", Runfile("tests/faults/libfault_shim.so")},
                      {"DDPRUN_TEST_FSYNC", error},
                      {"DDPRUN_TEST_FIRED", job.File("fired")}});
  if (!apart.StartNodes({})) return "no round forms:" + apart.coordinator().Describe();
  if (!bench.Eventually([&] { return job.HasFile("fired"); })) return "the fault did not fire";
  const std::string broken = apart.Finish();
  if (!broken.empty()) return broken;
  // Once, however many records there are.
  const std::string err = apart.coordinator().err();
  const std::string told = std::string("/job.new\": ") + text +
                           "; a coordinator that is started again in its place knows of this job "
                           "only what its nodes still know";
  if (CountOf(err, "warning: job file: sync \"") == 1 && CountOf(err, told) == 1) return "";
  return "nobody is told:" + apart.coordinator().Describe();
}

TEST_CASE("F34: a coordinator whose file cannot be made durable says so, and the job goes on") {
  CheckHolds([](Bench& bench) { return FailToSync(bench, "EIO", "Input/output error"); });
  CheckHolds([](Bench& bench) { return FailToSync(bench, "ENOSPC", "No space left on device"); });
}

// What a coordinator needs so that its file's disk hangs as long as there is a file "hang".
std::map<std::string, std::string> HungDisk(const Job& job) {
  // A state that nobody removes is the test's own.
  std::filesystem::create_directory(job.File("state"));
  std::filesystem::permissions(job.File("state"), std::filesystem::perms::owner_all);
  job.Touch("hang");
  return {{"LD_PRELOAD", Runfile("tests/faults/libfault_shim.so")},
          {"DDPRUN_TEST_FSYNC", "hang"},
          {"DDPRUN_TEST_HANG", job.File("hang")},
          {"DDPRUN_TEST_FIRED", job.File("fired")},
          {"XDG_RUNTIME_DIR", job.File("state")}};
}

constexpr char kSilent[] =
    "/job\": its file system does not answer; a coordinator that is started again in "
    "its place knows of this job only what its nodes still know";
constexpr char kStays[] =
    "/job\": its file system does not answer; delete the file before you use this --rdzv-id on "
    "this port again, or the next job counts this one's restarts as its own";

// For longer than the evict time, 10 s, and until the job is over.
std::string HangDisk(Bench& bench) {
  Job& job = bench.job();
  Apart apart(bench, HungDisk(job));
  if (!apart.StartNodes({"--max-restarts=1"})) {
    return "no round forms:" + apart.coordinator().Describe();
  }
  if (!job.WaitForFile("fired")) return "the fault did not fire";
  if (!apart.coordinator().WaitForErr(kSilent)) {
    return "nobody is told:" + apart.coordinator().Describe();
  }
  const auto are_lost = [&] {
    const std::string err = apart.node(0).err() + apart.node(1).err();
    return CountOf(err, "is lost") + CountOf(err, "coordinator lost") > 0;
  };
  if (Eventually(are_lost, std::chrono::seconds(12))) {
    return "contact breaks:" + apart.node(0).Describe() + apart.node(1).Describe();
  }
  kill(apart.Pids()[1], SIGKILL);
  if (!apart.AwaitWorkers(1)) return "no restart:" + apart.coordinator().Describe();
  const std::string grown = bench.CheckDescriptors();
  if (!grown.empty()) return grown;
  job.Touch("go");
  for (const size_t i : {size_t{0}, size_t{1}}) {
    if (!bench.DefenceBrings([&] { return HasEnded(apart.node(i)); })) {
      return "a verdict waits for a disk that hangs";
    }
    if (!bench.Ends(apart.node(i), 0)) {
      return "a node does not end with 0:" + apart.node(i).Describe();
    }
    if (are_lost()) return "contact breaks:" + apart.node(i).Describe();
  }
  if (!bench.Ends(apart.coordinator(), 0)) {
    return "the coordinator does not end with 0:" + apart.coordinator().Describe();
  }
  const std::string said = apart.coordinator().err();
  const bool is_told = CountOf(said, kSilent) == 1 && CountOf(said, kStays) == 1;
  return is_told ? "" : "not told once:" + apart.coordinator().Describe();
}

TEST_CASE("F34: a coordinator whose disk hangs says so, and neither contact nor end waits for it") {
  CheckHoldsBy("a verdict waits for the disk for two seconds", HangDisk,
               "a verdict waits for a disk that hangs");
}

// The coordinator in an agent, whose disk hangs at the end alone.
std::string HangDiskOfHost(Bench& bench) {
  Job& job = bench.job();
  const std::map<std::string, std::string> env = HungDisk(job);
  std::filesystem::remove(job.File("hang"));
  std::vector<Bench::Node> nodes;
  for (const char* place : {"1", "0"}) {
    nodes.push_back(
        bench.Run(job.NodeOptions(1, "2", {std::string("--rdzv-conf=is_host=") + place}),
                  {"touch:" + job.File("up{rank}"), "until:" + job.File("go")}, {.env = env}));
  }
  if (!job.WaitForFile("up0") || !job.WaitForFile("up1") || !job.WaitForFile("fired")) {
    return "no round forms:" + nodes[0]->Describe();
  }
  std::filesystem::remove(job.File("fired"));
  job.Touch("hang");
  job.Touch("go");
  for (const Bench::Node& node : nodes) {
    if (!bench.Ends(*node, 0)) return "a verdict waits for a disk that hangs:" + node->Describe();
  }
  if (!job.HasFile("fired")) return "the fault did not fire";
  const std::string said = nodes[0]->err();
  const bool is_told = CountOf(said, kSilent) == 0 && CountOf(said, kStays) == 1;
  return is_told ? "" : "not told once:" + nodes[0]->Describe();
}

TEST_CASE("F34: an agent whose disk hangs tells the verdict of its job, and ends") {
  CheckHolds(HangDiskOfHost);
}

}  // namespace
}  // namespace ddprun::testing
