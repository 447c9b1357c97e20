// Packets that are late, lost, doubled or swallowed between nodes.
#include <doctest/doctest.h>
#include <signal.h>

#include <string>

#include "tests/faults/bench.h"
#include "tests/faults/wire.h"
#include "tests/faults/wired.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

// Two cables lie between two hosts: a share that both together lose.
constexpr double OfBoth(double both) { return both / (2 - both / 2); }

std::string LosePackets(Bench& bench, Wire& wire) {
  Job& job = bench.job();
  Cable bad{.loss = OfBoth(0.1),
            .duplication = 0.05,
            .delay = std::chrono::milliseconds(25),    // no limit: the fault
            .jitter = std::chrono::milliseconds(50)};  // no limit: the fault
  wire.SetAll(bad);
  Wired nodes(bench, wire);
  nodes.Start({1, 2, 3}, {"--max-restarts=3"}, {"until:" + job.File("go")});
  if (!nodes.AwaitWorkers(0)) return "no round forms:" + nodes.Describe();
  nodes.NoteDescriptors();
  for (int restart = 1; restart <= 2; ++restart) {
    kill(job.PidOfRank(restart), SIGKILL);
    if (!nodes.AwaitWorkers(restart)) return "no restart:" + nodes.Describe();
  }
  if (nodes.Count("is lost") > 0) return "somebody is lost at 10 %:" + nodes.Describe();
  bad.loss = OfBoth(0.3);
  wire.SetAll(bad);
  kill(job.PidOfRank(2), SIGKILL);
  if (!nodes.AwaitWorkers(3)) return "no restart at 30 %:" + nodes.Describe();
  const PacketCounts counts = wire.counts();
  MESSAGE(counts.carried << " packets carried, " << counts.lost << " lost, " << counts.doubled
                         << " doubled, " << counts.overtaken << " overtaken");
  if (counts.lost == 0 || counts.doubled == 0 || counts.overtaken == 0) {
    return "the fault did not fire";
  }
  wire.SetAll({});
  const std::string grown = bench.CheckDescriptors();
  if (!grown.empty()) return grown;
  job.Touch("go");
  return nodes.AllEndWith(0) ? "" : "a node does not end with 0:" + nodes.Describe();
}

TEST_CASE(
    "F24: a job forms and restarts while packets are lost, late, doubled "
    "and overtaken") {
  std::string why;
  const auto wire = Wire::Make(3, &why);
  if (wire == nullptr) return SkipTest("no hosts of our own here: " + why);
  CheckHolds([&](Bench& bench) { return LosePackets(bench, *wire); });
}

// Half a second each way, as over a satellite, and by each cable as much as a modem carries.
std::string SlowLink(Bench& bench, Wire& wire) {
  Job& job = bench.job();
  // no limit: the fault
  wire.SetAll({.delay = std::chrono::milliseconds(250), .bytes_per_second = 20'000});
  Wired nodes(bench, wire);
  nodes.Start({1, 2, 3}, {"--max-restarts=1"}, {"until:" + job.File("go")});
  if (!nodes.AwaitWorkers(0)) return "no round forms:" + nodes.Describe();
  nodes.NoteDescriptors();
  const uint64_t queued = wire.counts().queued;
  kill(job.PidOfRank(1), SIGKILL);
  if (!nodes.AwaitWorkers(1)) return "no restart:" + nodes.Describe();
  if (wire.counts().queued == queued) return "the fault did not fire";
  // As often as contact is kept within the evict time of 10 s, and more.
  const uint64_t carried = wire.counts().carried;
  const auto is_kept = [&] { return wire.counts().carried >= carried + 60; };
  if (!bench.Eventually(is_kept)) return "contact is not kept:" + nodes.Describe();
  if (nodes.Count("is lost") + nodes.Count("coordinator lost") > 0) {
    return "somebody is lost:" + nodes.Describe();
  }
  MESSAGE(wire.counts().carried << " packets carried, " << wire.counts().queued << " queued");
  const std::string grown = bench.CheckDescriptors();
  if (!grown.empty()) return grown;
  job.Touch("go");
  return nodes.AllEndWith(0) ? "" : "a node does not end with 0:" + nodes.Describe();
}

TEST_CASE("F24: a job forms and restarts over links of half a second and 20 kB/s") {
  std::string why;
  const auto wire = Wire::Make(3, &why);
  if (wire == nullptr) return SkipTest("no hosts of our own here: " + why);
  CheckHolds([&](Bench& bench) { return SlowLink(bench, *wire); });
}

// Packets of more than 1400 bytes vanish on the way to and from the second
// node, and nobody is told, as where a tunnel leaves less room than the hosts
// believe. The second node's failure, with the last lines of its worker, is
// more than one of them.
std::string SwallowLarge(Bench& bench, Wire& wire) {
  Job& job = bench.job();
  Wired nodes(bench, wire);
  const std::string much(3000, 'x');
  nodes.Start({1, 2}, {"--max-restarts=1"},
              {"until:" + job.File("fail") + "@1#0", "err:" + much + "@1#0", "exit:7@1#0",
               "until:" + job.File("go")});
  if (!nodes.AwaitWorkers(0)) return "no round forms:" + nodes.Describe();
  nodes.NoteDescriptors();
  wire.Set(2, {.largest_packet = 1400});
  Subprocess datagram(
      {"/bin/bash", "-c", "head -c 1450 /dev/zero >/dev/udp/" + wire.Address(1) + "/9"},
      {.netns = wire.Name(2)});
  if (!bench.Eventually([&] { return wire.counts().too_large > 0; })) {
    return "the fault did not fire" + datagram.Describe();
  }
  job.Touch("fail");
  const auto is_judged = [&] { return nodes.Count("is lost") > 0 || job.HasFile("up1.1"); };
  if (!bench.Eventually(is_judged) || nodes.Count("is lost") > 0) {
    return "a failure that is not heard makes a lost node:" + nodes.Describe();
  }
  if (!nodes.AwaitWorkers(1)) return "no restart:" + nodes.Describe();
  if (nodes.Count("rank 1 on node") < 2 || nodes.Count("failed: exit code 7") < 2) {
    return "the failure is not named on both nodes:" + nodes.Describe();
  }
  const std::string grown = bench.CheckDescriptors();
  if (!grown.empty()) return grown;
  job.Touch("go");
  return nodes.AllEndWith(0) ? "" : "a node does not end with 0:" + nodes.Describe();
}

TEST_CASE("F30: a failure is heard where large packets vanish") {
  std::string why;
  const auto wire = Wire::Make(2, &why);
  if (wire == nullptr) return SkipTest("no hosts of our own here: " + why);
  CheckHolds([&](Bench& bench) { return SwallowLarge(bench, *wire); });
}

// Where not even the rendezvous' own packets get through once they are full, 1280 bytes, a failure
// with its worker's last lines is never heard, nor anything behind it.
std::string SwallowOwn(Bench& bench, Wire& wire, bool is_limited) {
  Job& job = bench.job();
  wire.SetAll({});
  Wired nodes(bench, wire);
  const std::string much(3000, 'x');
  // It connects again after some 7 s, and is heard then: the evict time has to be shorter.
  std::vector<std::string> options = {
      "--nnodes=1:2", "--max-restarts=1",
      "--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=5,last_call_timeout=60"};
  if (is_limited) options.push_back("--max-node-losses=1");
  nodes.Start({1, 2}, options,
              {"until:" + job.File("fail") + "@1#0", "err:" + much + "@1#0", "exit:7@1#0",
               "until:" + job.File("go")});
  if (!nodes.AwaitWorkers(0)) return "no round forms:" + nodes.Describe();
  nodes.NoteDescriptors();
  const uint64_t before = wire.counts().too_large;
  wire.Set(2, {.largest_packet = 1000});
  job.Touch("fail");
  const std::string lost = " is lost: silent for 5 s; ";
  if (!bench.Says(nodes.node(0), lost, is_limited ? 1 : 2)) {
    return "it is not lost again and again:" + nodes.Describe();
  }
  if (wire.counts().too_large == before) return "the fault did not fire";
  if (is_limited) {
    if (!bench.Ends(nodes.node(0), 121)) return "it is lost for ever:" + nodes.Describe();
    // The lost one may come back too late to hear of it, and waits for a coordinator.
    nodes.node(1).Signal(SIGTERM);
    if (!nodes.node(1).Wait()) return "the lost one does not end:" + nodes.Describe();
    const bool is_told = bench.Says(nodes.node(0), lost + "no node loss is left of 1 (");
    return is_told ? "" : "nobody is told why:" + nodes.Describe();
  }
  // Its own agent names it all the same.
  if (nodes.node(0).err().find("exit code 7") != std::string::npos) {
    return "the failure is heard:" + nodes.Describe();
  }
  if (!bench.Says(nodes.node(1), "rank 1 failed: exit code 7; the coordinator at ")) {
    return "the failure is not named on its own node:" + nodes.Describe();
  }
  wire.Heal(2);
  if (!nodes.AwaitWorkers(1)) return "no restart:" + nodes.Describe();
  const std::string grown = bench.CheckDescriptors();
  if (!grown.empty()) return grown;
  job.Touch("go");
  return nodes.AllEndWith(0) ? "" : "a node does not end with 0:" + nodes.Describe();
}

TEST_CASE("F30: a node whose failure cannot be heard is lost as silent, again and again") {
  std::string why;
  const auto wire = Wire::Make(2, &why);
  if (wire == nullptr) return SkipTest("no hosts of our own here: " + why);
  SUBCASE("until its packets get through") {
    CheckHolds([&](Bench& bench) { return SwallowOwn(bench, *wire, false); });
  }
  SUBCASE("or the limit of losses is reached") {
    CheckHolds([&](Bench& bench) { return SwallowOwn(bench, *wire, true); });
  }
}

}  // namespace
}  // namespace ddprun::testing
