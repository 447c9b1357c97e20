// A worker that waits in the kernel, where SIGKILL does not end it.
#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "tests/faults/bench.h"
#include "tests/faults/hung_disk.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

// The agent waits for a minute behind SIGKILL, and looks for what is left for 10 s more.
constexpr std::chrono::seconds kGivenUp{150};

std::unique_ptr<HungDisk> MountFor(Bench& bench, std::string* why) {
  const std::string folder = bench.job().File("disk");
  std::filesystem::create_directory(folder);
  return HungDisk::Mount(folder, why);
}

// Whether the worker that looks for a file of the disk has been killed and lives.
bool IsHeld(int pid) { return StateOf(pid) == 'D'; }

// "" once the node has given up the worker of this rank, which lives on, and ended with the code.
std::string GivesUp(const Bench& bench, Subprocess& node, int rank, int pid, int exit_code) {
  const std::string who = "rank " + std::to_string(rank) + " (pid " + std::to_string(pid) + ")";
  if (!bench.Says(node, who + " did not end within 1 s of SIGTERM: killed") ||
      !bench.Eventually([&] { return IsHeld(pid); })) {
    return "the fault did not fire:" + node.Describe();
  }
  const std::optional<int> code = node.Wait(kGivenUp);
  if (!IsHeld(pid)) return "the fault is over:" + node.Describe();
  if (!code.has_value()) return "a worker that does not die is waited for without end";
  if (code != exit_code) return "it ends with another code:" + node.Describe();
  const std::string after = " after SIGKILL: the kernel holds it (";
  if (CountOf(node.err(), who + " lives on 5 s" + after) != 1 ||
      CountOf(node.err(), "error: " + who + " lives on 60 s" + after) != 1) {
    return "nobody is told:" + node.Describe();
  }
  return "";
}

// Rank 1 hangs and rank 0 fails.
std::string FailBeside(Bench& bench) {
  Job& job = bench.job();
  std::string why;
  const auto disk = MountFor(bench, &why);
  if (disk == nullptr) return "no disk: " + why;
  const Bench::Node node =
      bench.Run({"--nproc-per-node=2", "--shutdown-timeout=1"},
                {"touch:" + job.File("up{rank}"), "until:" + disk->file() + "@1",
                 "until:" + job.File("fail"), "exit:3"});
  if (!job.WaitForFile("up0") || !bench.Eventually([&] { return disk->unanswered() > 0; })) {
    return "the fault did not fire:" + node->Describe();
  }
  const int pid = job.PidOfRank(1);
  job.Touch("fail");
  return GivesUp(bench, *node, 1, pid, 3);
}

// Rank 0 hangs and the agent is told to stop.
std::string StopBeside(Bench& bench) {
  Job& job = bench.job();
  std::string why;
  const auto disk = MountFor(bench, &why);
  if (disk == nullptr) return "no disk: " + why;
  const Bench::Node node =
      bench.Run({"--nproc-per-node=2", "--shutdown-timeout=1"},
                {"touch:" + job.File("up{rank}"), "until:" + disk->file() + "@0", "wait"});
  if (!job.WaitForFile("up1") || !bench.Eventually([&] { return disk->unanswered() > 0; })) {
    return "the fault did not fire:" + node->Describe();
  }
  const int pid = job.PidOfRank(0);
  node->Signal(SIGTERM);
  return GivesUp(bench, *node, 0, pid, 128 + SIGTERM);
}

// The worker of one node hangs, that of the other fails: the job goes on without the one.
std::string GoOnWithout(Bench& bench) {
  Job& job = bench.job();
  std::string why;
  const auto disk = MountFor(bench, &why);
  if (disk == nullptr) return "no disk: " + why;
  std::vector<Bench::Node> nodes;
  for (const char* place : {"1", "0"}) {
    nodes.push_back(bench.Run(
        job.NodeOptions(1, "1:2",
                        {"--max-restarts=1", "--shutdown-timeout=1",
                         std::string("--rdzv-conf=last_call_timeout=60,is_host=") + place}),
        {"touch:" + job.File("up{rank}.{restart}"), "until:" + disk->file() + "@1",
         "until:" + job.File("fail") + "#0", "exit:3#0", "until:" + job.File("go")}));
  }
  if (!job.WaitForFile("up0.0") || !bench.Eventually([&] { return disk->unanswered() > 0; })) {
    return "the fault did not fire:" + nodes[1]->Describe();
  }
  const int pid = job.PidOfRank(1);
  bench.NoteDescriptors(*nodes[0]);
  job.Touch("fail");
  const std::string broken = GivesUp(bench, *nodes[1], 1, pid, 120);
  if (!broken.empty()) return broken;
  if (!job.WaitForFile("up0.1")) return "the other node does not go on:" + nodes[0]->Describe();
  const std::string left =
      " left: rank 1 (pid " + std::to_string(pid) + ") lives on 60 s after SIGKILL: ";
  if (CountOf(nodes[0]->err(), left) != 1 ||
      CountOf(nodes[0]->err(), "; going on with 1 node and 1 rank instead of 2 and 2") != 1) {
    return "the other node is not told:" + nodes[0]->Describe();
  }
  const std::string grown = bench.CheckDescriptors();
  if (!grown.empty()) return grown;
  job.Touch("go");
  return bench.Ends(*nodes[0], 0) ? "" : "it does not end with 0:" + nodes[0]->Describe();
}

TEST_CASE("F04: a worker that SIGKILL does not end is named and given up, and is no success") {
  {
    Bench probe;
    std::string why;
    if (MountFor(probe, &why) == nullptr) return SkipTest("no file system of our own: " + why);
  }
  // Side by side, as each takes more than a minute.
  std::list<Bench> benches;
  std::vector<std::future<std::string>> results;
  for (const Scenario& scenario : std::vector<Scenario>{FailBeside, StopBeside, GoOnWithout}) {
    results.push_back(std::async(std::launch::async, scenario, std::ref(benches.emplace_back())));
  }
  for (std::future<std::string>& result : results) CHECK(result.get() == "");
  for (const Bench& bench : benches) CHECK(bench.CheckAllGone() == "");
}

}  // namespace
}  // namespace ddprun::testing
