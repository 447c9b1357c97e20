// Faults between an agent and its coordinator, each over ddprun and over one without the defence.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/faults/apart.h"
#include "tests/faults/bench.h"
#include "tests/faults/wire.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

constexpr char kLost[] = "coordinator lost";
constexpr char kGoOn[] = "this node's workers go on without it up to";
constexpr char kBack[] = "coordinator back";
// After the evict time, 10 s.
constexpr char kSilent[] = "is lost: silent for 10 s; going on";
constexpr char kGoesOnAlone[] = "going on with 1 node and 1 rank instead of 2 and 2";
constexpr char kUnanswered[] = "its machine has answered neither data nor connections for 10 s";
constexpr std::chrono::seconds kEvicted{15};

std::string DidNotFire(const Subprocess& process) {
  return "the fault did not fire:" + process.Describe();
}

std::string RestartCoordinator(Bench& bench) {
  Apart apart(bench);
  if (!apart.StartNodes({"--max-restarts=1"})) return DidNotFire(apart.node(0));
  const std::vector<int> pids = apart.Pids();
  apart.coordinator().Signal(SIGKILL);
  if (apart.coordinator().Wait() != 128 + SIGKILL) return DidNotFire(apart.coordinator());
  if (!apart.HaveBothSaid(kLost)) return DidNotFire(apart.node(0));
  if (!apart.StartCoordinator()) return DidNotFire(apart.coordinator());
  const auto is_judged = [&] {
    return apart.Pids() != pids || CountOf(apart.node(0).err(), kBack) > 0;
  };
  if (!bench.Eventually(is_judged) || apart.Pids() != pids || !apart.HaveBothSaid(kBack)) {
    return "workers are stopped for a coordinator that came back";
  }
  return apart.Finish();
}

TEST_CASE("F14: a coordinator that is killed and started again disturbs no worker") {
  CheckHoldsBy("a coordinator that is started again takes up the round", RestartCoordinator,
               "workers are stopped for a coordinator that came back");
}

std::string DieWithVerdict(Bench& bench) {
  Job& job = bench.job();
  // Without the defence it lives until it has told the verdict, however long that takes.
  if (!bench.has_defence()) job.Touch("wait");
  Apart apart(bench, {{"LD_PRELOAD", Runfile("tests/faults/libfault_shim.so")},
                      {"DDPRUN_TEST_FSYNC", "die"},
                      {"DDPRUN_TEST_HANG", job.File("wait")},
                      {"DDPRUN_TEST_FIRED", job.File("fired")}});
  if (!apart.StartNodes({})) return DidNotFire(apart.node(0));
  job.Touch("go");
  if (!job.WaitForFile("fired")) return DidNotFire(apart.coordinator());
  if (bench.has_defence() && apart.coordinator().Wait() != 128 + SIGKILL) {
    return DidNotFire(apart.coordinator());
  }
  // Who has heard a verdict needs no coordinator.
  if (!bench.IsPrevented([&] { return HasEnded(apart.node(0)) || HasEnded(apart.node(1)); })) {
    return "a node has ended by a verdict that the next coordinator does not know";
  }
  if (!apart.StartCoordinator()) return DidNotFire(apart.coordinator());
  return apart.Finish();
}

TEST_CASE("F14: a coordinator that dies before its verdict is durable has told it nobody") {
  CheckHoldsBy("a verdict is durable before it is told", DieWithVerdict,
               "a node has ended by a verdict that the next coordinator does not know");
}

std::string StopCoordinator(Bench& bench) {
  Apart apart(bench);
  if (!apart.StartNodes({})) return DidNotFire(apart.node(0));
  const std::vector<int> pids = apart.Pids();
  apart.coordinator().Signal(SIGSTOP);
  // Contact is lost after 10 s at the earliest, and told as that after 5 s more.
  if (!apart.HaveBothSaid(kGoOn)) return DidNotFire(apart.node(0));
  apart.coordinator().Signal(SIGCONT);
  const auto is_judged = [&] {
    return apart.Pids() != pids || CountOf(apart.node(0).err(), kBack) > 0;
  };
  if (!bench.Eventually(is_judged) || apart.Pids() != pids || !apart.HaveBothSaid(kBack)) {
    return "a node is lost for the time in which the coordinator stood still";
  }
  const std::string end = apart.Finish();
  if (CountOf(apart.node(0).err() + apart.node(1).err(), "is lost: silent") > 0) {
    return "a node is lost for the time in which the coordinator stood still";
  }
  return end;
}

TEST_CASE("F16: a coordinator that is stopped for longer than the evict time evicts nobody") {
  CheckHoldsBy("amnesty for a coordinator that did not run", StopCoordinator,
               "a node is lost for the time in which the coordinator stood still");
}

// Two nodes of which the second falls silent while both run.
std::string CutNode(Bench& bench, Wire& wire) {
  Job& job = bench.job();
  wire.SetAll({});
  std::vector<Bench::Node> nodes;
  for (int i = 1; i <= 2; ++i) {
    nodes.push_back(bench.Run(
        {"--nnodes=1:2", "--nproc-per-node=1", "--rdzv-id=" + job.id(), "--rdzv-backend=c10d",
         "--rdzv-endpoint=" + wire.Address(1) + ":29400", "--rdzv-conf=last_call_timeout=60"},
        {"touch:" + job.File("up{rank}.{pid}"), "touch:" + job.File("up{rank}"),
         "until:" + job.File("go")},
        {.netns = wire.Name(i)}));
  }
  if (!job.WaitForFile("up0") || !job.WaitForFile("up1")) return DidNotFire(*nodes[0]);
  bench.NoteDescriptors(*nodes[0]);
  const uint64_t cut = wire.counts().cut;
  wire.Cut(2);
  if (!bench.Eventually([&] { return wire.counts().cut > cut; })) return DidNotFire(*nodes[0]);
  const auto goes_on = [&] { return CountOf(nodes[0]->err(), kGoesOnAlone) > 0; };
  if (!bench.DefenceBrings(goes_on, kEvicted)) return "a silent node is waited for without end";
  if (CountOf(nodes[0]->err(), kSilent) != 1) {
    return "the silent node is not named:" + nodes[0]->Describe();
  }
  // The other side knows as well that it is not part of it.
  if (!bench.Says(*nodes[1], kUnanswered)) {
    return "the side that is cut off does not notice:" + nodes[1]->Describe();
  }
  if (!bench.Eventually([&] { return !job.HasWorker(1); })) {
    return "the side that is cut off does not stop its worker:" + nodes[1]->Describe();
  }
  wire.Heal(2);
  // Back again as a node of a new round.
  if (!bench.Eventually([&] { return job.HasWorker(0) && job.HasWorker(1); })) {
    return "the node does not come back:" + nodes[1]->Describe();
  }
  const std::string grown = bench.CheckDescriptors();
  if (!grown.empty()) return grown;
  job.Touch("go");
  for (const Bench::Node& node : nodes) {
    if (!bench.Ends(*node, 0)) return "a node does not end with 0:" + node->Describe();
  }
  return "";
}

TEST_CASE("F21: a node behind a cable that is pulled is lost, and comes back with it") {
  std::string why;
  const auto wire = Wire::Make(2, &why);
  if (wire == nullptr) return SkipTest("no hosts of our own here: " + why);
  CheckHoldsBy(
      "a silent node is lost", [&](Bench& bench) { return CutNode(bench, *wire); },
      "a silent node is waited for without end");
}

bool IsStopped(int pid) {
  const std::string stat = ReadFile("/proc/" + std::to_string(pid) + "/stat");
  return stat.find(") T ") != std::string::npos;
}

// Of two agents, the one that does not host stands still for longer than its evict time.
std::string StopAgent(Bench& bench) {
  Job& job = bench.job();
  std::vector<Bench::Node> nodes;
  for (const char* place : {"1", "0"}) {
    nodes.push_back(bench.Run(
        job.NodeOptions(
            1, "1:2",
            {"--max-restarts=1", std::string("--rdzv-conf=last_call_timeout=60,is_host=") + place}),
        {"touch:" + job.File("up{rank}"), "until:" + job.File("go")},
        {.env = {{"DDPRUN_LOG_LEVEL", "info"}}}));
  }
  if (!job.WaitForFile("up0") || !job.WaitForFile("up1")) return DidNotFire(*nodes[1]);
  const int old = job.PidOfRank(1);
  bench.NoteDescriptors(*nodes[0]);
  nodes[1]->Signal(SIGSTOP);
  if (!bench.Eventually([&] { return IsStopped(nodes[1]->pid()); })) return DidNotFire(*nodes[1]);
  const auto goes_on = [&] { return CountOf(nodes[0]->err(), kGoesOnAlone) > 0; };
  if (!bench.DefenceBrings(goes_on, kEvicted)) {
    return "an agent that stands still is waited for without end";
  }
  if (CountOf(nodes[0]->err(), kSilent) != 1) {
    return "the agent that stands still is not named:" + nodes[0]->Describe();
  }
  if (!IsStopped(nodes[1]->pid()) || job.PidOfRank(1) != old) return DidNotFire(*nodes[1]);
  nodes[1]->Signal(SIGCONT);
  bool was_beside = false;
  const auto is_back = [&] {
    const std::vector<int> pids = job.PidsOfRank(1);
    const bool has_old = std::find(pids.begin(), pids.end(), old) != pids.end();
    was_beside = was_beside || (has_old && pids.size() > 1);
    return !has_old && !pids.empty();
  };
  if (!bench.Eventually(is_back)) return "the node does not come back:" + nodes[1]->Describe();
  if (was_beside) return "its old worker and its new one run side by side";
  const std::string grown = bench.CheckDescriptors();
  if (!grown.empty()) return grown;
  job.Touch("go");
  for (const Bench::Node& node : nodes) {
    if (!bench.Ends(*node, 0)) return "a node does not end with 0:" + node->Describe();
  }
  // With both, without the one, with both again.
  const std::string& err = nodes[0]->err();
  if (CountOf(err, " assigned run=") != 3 || CountOf(err, " restart=0 ") != 3) {
    return "not one round without it and one with it again, both for free:" + nodes[0]->Describe();
  }
  return "";
}

TEST_CASE("F11: an agent that stands still is lost, and its node comes back once, for free") {
  CheckHoldsBy("a silent node is lost", StopAgent,
               "an agent that stands still is waited for without end");
}

// The name leads elsewhere until the coordinator has moved to where it is.
std::string MoveName(Bench& bench) {
  Job& job = bench.job();
  const std::string port = std::to_string(job.port());
  const Bench::Node coordinator =
      bench.RunRaw({"coordinator", "--bind=127.0.0.1:" + port, "--rdzv-id=moved"});
  if (!bench.Says(*coordinator, "listening on")) return DidNotFire(*coordinator);
  const std::string names = job.File("names");
  WriteFile(names, "127.0.0.1 localhost\n127.0.0.2 meeting-place\n");
  const Bench::Node node =
      bench.Run({"--nnodes=1", "--nproc-per-node=1", "--rdzv-id=moved", "--rdzv-backend=c10d",
                 "--rdzv-conf=is_host=0", "--rdzv-endpoint=meeting-place:" + port},
                {}, {.hosts_file = names});
  if (!bench.Says(*node, "last try: Connection refused")) return DidNotFire(*node);
  // In place: what stands at /etc/hosts is this very file.
  WriteFile(names, "127.0.0.1 localhost meeting-place\n");
  if (!bench.DefenceBrings([&] { return HasEnded(*node); })) {
    return "a name that leads to another address by now is not followed";
  }
  if (node->Wait() != 0) return "the node does not end with 0:" + node->Describe();
  return bench.Ends(*coordinator, 0) ? "" : "it does not end with 0:" + coordinator->Describe();
}

TEST_CASE("F29: the coordinator's name is followed to another address") {
  CheckHoldsBy("a name is looked up at each attempt", MoveName,
               "a name that leads to another address by now is not followed");
}

std::string ResetStreams(Bench& bench) {
  rendezvous::Proxy proxy(static_cast<uint16_t>(bench.job().port()));
  Apart apart(bench);
  if (!apart.StartNodes({"--max-restarts=1"}, {proxy.port(), proxy.port()}))
    return DidNotFire(apart.node(0));
  const std::vector<int> pids = apart.Pids();
  for (size_t times = 1; times <= 3; ++times) {
    proxy.Cut();
    const auto is_judged = [&] {
      return apart.Pids() != pids || CountOf(apart.node(0).err(), kBack) >= times;
    };
    if (!bench.Eventually(is_judged) || apart.Pids() != pids || !apart.HaveBothSaid(kBack, times)) {
      return bench.Says(apart.node(0), "coordinator is lost: ") ? "a reset ends the node"
                                                                : DidNotFire(apart.node(0));
    }
  }
  // What happens afterwards is heard.
  kill(apart.Pids()[1], SIGKILL);
  if (!apart.AwaitWorkers(1)) return "no restart after the resets:" + apart.node(0).Describe();
  return apart.Finish();
}

TEST_CASE("F27: connections that are reset again and again disturb no worker") {
  CheckHoldsBy("an agent connects again", ResetStreams, "a reset ends the node");
}

// Rank 1 dies, and then rank 0, while the network stands still: the coordinator hears of both in
// the same moment.
std::string FailTwice(Bench& bench) {
  rendezvous::Proxy proxy(static_cast<uint16_t>(bench.job().port()));
  Apart apart(bench);
  if (!apart.StartNodes({}, {proxy.port(), proxy.port()})) return DidNotFire(apart.node(0));
  const std::vector<int> pids = apart.Pids();
  proxy.Stall();
  kill(pids[1], SIGKILL);
  if (!bench.Says(apart.node(1), "reporting failure") || apart.Pids()[0] != pids[0]) {
    return DidNotFire(apart.node(1));
  }
  kill(pids[0], SIGXCPU);  // no abort, and none that a sanitizer catches
  if (!bench.Says(apart.node(0), "reporting failure")) return DidNotFire(apart.node(0));
  proxy.Release();
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const std::optional<int> code = apart.node(i).Wait();
    if (code == 128 + SIGXCPU) return "the second failure is named for the first";
    const bool is_named = CountOf(apart.node(i).err(), "rank      : 1") > 0;
    if (code != 128 + SIGKILL || !is_named)
      return "rank 1 is not named:" + apart.node(i).Describe();
  }
  return bench.Ends(apart.coordinator(), 128 + SIGKILL) ? "" : apart.coordinator().Describe();
}

TEST_CASE("F01: of two failures the first is named, though both are heard of at once") {
  CheckHoldsBy("the first failure is named", FailTwice,
               "the second failure is named for the first");
}

}  // namespace
}  // namespace ddprun::testing
