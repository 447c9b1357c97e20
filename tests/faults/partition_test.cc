// Networks of which a part does not hear the rest.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/faults/bench.h"
#include "tests/faults/wire.h"
#include "tests/faults/wired.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

constexpr char kLongCall[] = "--rdzv-conf=last_call_timeout=60";
// After the evict time, 10 s.
constexpr char kUnanswered[] = "its machine has answered neither data nor connections for 10 s";

// Of two nodes the second hears the first and is not heard, or the other way round.
std::string CutOneWay(Bench& bench, Wire& wire, const Cable& cable) {
  Job& job = bench.job();
  wire.SetAll({});
  Wired nodes(bench, wire);
  nodes.Start({1, 2}, {"--nnodes=1:2", kLongCall}, {"until:" + job.File("go")});
  if (!nodes.AwaitRunning({1, 2}, 1)) return "no round forms:" + nodes.Describe();
  nodes.NoteDescriptors();
  const uint64_t cut = wire.counts().cut;
  wire.Set(2, cable);
  if (!bench.Eventually([&] { return wire.counts().cut > cut; })) return "the fault did not fire";
  if (!bench.Says(nodes.node(0), "going on with 1 node and 1 rank instead of 2 and 2")) {
    return "a node that is half heard is waited for without end";
  }
  if (!nodes.AwaitRunning({1}, 2) || !nodes.AwaitStopped({2})) {
    return "not one side alone runs:" + nodes.Describe();
  }
  if (!bench.Says(nodes.node(1), kUnanswered)) {
    return "the side that is cut off is not told why:" + nodes.Describe();
  }
  // Nor do rounds come and go while it knocks again and again.
  const uint64_t knocks = wire.counts().cut + 5;
  if (!bench.Eventually([&] { return wire.counts().cut >= knocks; })) return "it does not knock";
  if (nodes.Starts(1) != 2 || nodes.Starts(2) != 1 ||
      nodes.Count("is lost: silent for 10 s; going on") != 1) {
    return "one loss is not one change:" + nodes.Describe();
  }
  wire.Heal(2);
  if (!nodes.AwaitRunning({1}, 3) || !nodes.AwaitRunning({2}, 2)) {
    return "the node does not come back:" + nodes.Describe();
  }
  const std::string grown = bench.CheckDescriptors();
  if (!grown.empty()) return grown;
  job.Touch("go");
  return nodes.AllEndWith(0) ? "" : "a node does not end with 0:" + nodes.Describe();
}

TEST_CASE("F22: a node that hears and is not heard is lost once, and comes back") {
  std::string why;
  const auto wire = Wire::Make(2, &why);
  if (wire == nullptr) return SkipTest("no hosts of our own here: " + why);
  CheckHolds([&](Bench& bench) { return CutOneWay(bench, *wire, {.is_mute = true}); });
}

TEST_CASE("F22: a node that is heard and does not hear is lost once, and comes back") {
  std::string why;
  const auto wire = Wire::Make(2, &why);
  if (wire == nullptr) return SkipTest("no hosts of our own here: " + why);
  CheckHolds([&](Bench& bench) { return CutOneWay(bench, *wire, {.is_deaf = true}); });
}

// Four nodes, of which 1 hosts the rendezvous.
bool StartFour(Bench& bench, Wire& wire, Wired& nodes, const std::string& more_conf) {
  wire.SetAll({});
  nodes.Start({1, 2, 3, 4}, {"--nnodes=2:4", kLongCall + more_conf},
              {"until:" + bench.job().File("go")});
  return nodes.AwaitRunning({1, 2, 3, 4}, 1);
}

// From now on 3 and 4 hear each other alone, and so do 1 and 2. "" once these go on alone.
std::string Halve(Bench& bench, Wire& wire, Wired& nodes) {
  const uint64_t cut = wire.counts().cut;
  for (const int host : {3, 4}) wire.Set(host, {.side = 1});
  if (!bench.Eventually([&] { return wire.counts().cut > cut; })) return "the fault did not fire";
  if (!bench.Says(nodes.node(0), "going on with 2 nodes and 2 ranks instead of 4 and 4")) {
    return "the lost half is waited for without end:" + nodes.Describe();
  }
  if (!nodes.AwaitRunning({1, 2}, 2) || !nodes.AwaitStopped({3, 4})) {
    return "not one half alone runs:" + nodes.Describe();
  }
  for (const size_t i : {size_t{2}, size_t{3}}) {
    if (!bench.Says(nodes.node(i), kUnanswered)) {
      return "a node of the lost half is not told why:" + nodes.node(i).Describe();
    }
  }
  return "";
}

std::string HalveAndJoin(Bench& bench, Wire& wire) {
  Wired nodes(bench, wire);
  if (!StartFour(bench, wire, nodes, "")) return "no round forms:" + nodes.Describe();
  nodes.NoteDescriptors();
  const std::string broken = Halve(bench, wire, nodes);
  if (!broken.empty()) return broken;
  wire.SetAll({});
  // They may come one after the other, with a round of three in between.
  const auto all_run = [&] {
    for (const int host : {1, 2, 3, 4}) {
      if (nodes.PidOn(host) == 0) return false;
    }
    return nodes.Starts(3) > 1 && nodes.Starts(4) > 1;
  };
  if (!bench.Eventually(all_run) || nodes.Starts(1) > 4) {
    return "the lost half does not come back:" + nodes.Describe();
  }
  const std::string grown = bench.CheckDescriptors();
  if (!grown.empty()) return grown;
  bench.job().Touch("go");
  return nodes.AllEndWith(0) ? "" : "a node does not end with 0:" + nodes.Describe();
}

TEST_CASE("F23: of two halves that of the coordinator goes on, and the other one comes back") {
  std::string why;
  const auto wire = Wire::Make(4, &why);
  if (wire == nullptr) return SkipTest("no hosts of our own here: " + why);
  CheckHolds([&](Bench& bench) { return HalveAndJoin(bench, *wire); });
}

// How many descriptors the first two nodes have in a job of two.
std::string CountOfTwo(Bench& bench, Wire& wire, std::vector<size_t>& counts) {
  Wired nodes(bench, wire);
  nodes.Start({1, 2}, {}, {"until:" + bench.job().File("go")});
  if (!nodes.AwaitRunning({1, 2}, 1)) return "no round forms:" + nodes.Describe();
  for (const size_t i : {size_t{0}, size_t{1}}) {
    counts.push_back(bench.SettledDescriptors(nodes.node(i)));
  }
  bench.job().Touch("go");
  return nodes.AllEndWith(0) ? "" : "a node does not end with 0:" + nodes.Describe();
}

// `counts`: what the first two may have when the others are gone.
std::string HalveForEver(Bench& bench, Wire& wire, const std::vector<size_t>& counts) {
  Wired nodes(bench, wire);
  if (!StartFour(bench, wire, nodes, ",join_timeout=20")) {
    return "no round forms:" + nodes.Describe();
  }
  for (const size_t i : {size_t{0}, size_t{1}}) bench.AllowDescriptors(nodes.node(i), counts[i]);
  const std::string broken = Halve(bench, wire, nodes);
  if (!broken.empty()) return broken;
  for (const size_t i : {size_t{2}, size_t{3}}) {
    if (!bench.Ends(nodes.node(i), 121)) {
      return "a node of the lost half does not end with 121:" + nodes.node(i).Describe();
    }
  }
  if (nodes.Starts(1) != 2 || nodes.Starts(3) != 1 || nodes.Starts(4) != 1) {
    return "another round has begun:" + nodes.Describe();
  }
  const std::string grown = bench.CheckDescriptors();
  if (!grown.empty()) return grown;
  bench.job().Touch("go");
  for (const size_t i : {size_t{0}, size_t{1}}) {
    if (!bench.Ends(nodes.node(i), 0)) {
      return "the half of the coordinator does not end with 0:" + nodes.node(i).Describe();
    }
  }
  return "";
}

TEST_CASE("F23: of two halves that never meet again that of the coordinator ends well") {
  std::string why;
  const auto wire = Wire::Make(4, &why);
  if (wire == nullptr) return SkipTest("no hosts of our own here: " + why);
  std::vector<size_t> counts;
  CheckHolds([&](Bench& bench) { return CountOfTwo(bench, *wire, counts); });
  REQUIRE(counts.size() == 2);
  CheckHolds([&](Bench& bench) { return HalveForEver(bench, *wire, counts); });
}

}  // namespace
}  // namespace ddprun::testing
