// The name of the rendezvous moves to a second coordinator of the job, on another machine, while
// the first one lives.
#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "tests/faults/bench.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/netns.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

constexpr char kPort[] = "29400";

// Coordinators on hosts 1 and 2, which know nothing of each other, and nodes of one worker each on
// hosts 3 and 4, each with a word of its own on where the meeting place is.
class Meeting {
 public:
  Meeting(Bench& bench, const Hosts& hosts) : bench_(bench), hosts_(hosts) {}

  // "" or what is wrong. Both nodes meet at the first coordinator.
  std::string Start(const std::string& nodes) {
    for (const int at : {1, 2}) {
      // On one machine they would share it.
      const std::string state = bench_.job().File("state" + std::to_string(at));
      std::filesystem::create_directory(state);
      std::filesystem::permissions(state, std::filesystem::perms::owner_all);
      coordinators_.push_back(
          bench_.RunRaw({"coordinator", "--bind=" + hosts_.Address(at) + ":" + kPort,
                         "--rdzv-id=" + bench_.job().id()},
                        {.env = {{"XDG_RUNTIME_DIR", state}}, .netns = hosts_.Name(at)}));
      if (!bench_.Says(coordinator(at), "listening on")) return coordinator(at).Describe();
    }
    for (const int index : {0, 1}) {
      Move(index, 1);
      nodes_.push_back(
          bench_.Run({"--nnodes=" + nodes, "--nproc-per-node=1", "--max-restarts=1",
                      "--rdzv-id=" + bench_.job().id(), "--rdzv-backend=c10d",
                      std::string("--rdzv-endpoint=meeting-place:") + kPort,
                      "--rdzv-conf=last_call_timeout=60"},
                     {"env:TORCHELASTIC_RESTART_COUNT", "env:MASTER_ADDR", "env:MASTER_PORT",
                      "print:up", "until:" + bench_.job().File("go")},
                     {.env = {{"DDPRUN_LOG_LEVEL", "info"}},
                      .netns = hosts_.Name(3 + index),
                      .hosts_file = Names(index)}));
    }
    if (!AwaitStarts(0, 1) || !AwaitStarts(1, 1)) return "no round forms:" + Describe();
    for (const Bench::Node& node : nodes_) bench_.NoteDescriptors(*node);
    return "";
  }

  // What the node is told from now on, and which coordinator it reaches: whoever can goes back to
  // the one that it knows. In place: what stands at /etc/hosts is this very file.
  void Move(int index, int at) const {
    WriteFile(Names(index), "127.0.0.1 localhost\n" + hosts_.Address(at) + " meeting-place\n");
    const std::string route = "netns exec " + hosts_.Name(3 + index) + " ip route ";
    RunIp(route + "del prohibit " + hosts_.Address(at));  // there may be none
    const std::string why = RunIp(route + "replace prohibit " + hosts_.Address(3 - at));
    REQUIRE_MESSAGE(why.empty(), why);
  }
  // Resets all connections of the coordinator. Whether the nodes that are to have noticed have.
  bool Reset(int at, const std::vector<int>& noticed) {
    std::array<size_t, 2> before{};
    for (const int index : noticed) before[index] = CountOf(node(index).err(), "coordinator lost");
    const std::string why =
        RunIp("netns exec " + hosts_.Name(at) + " ss -K state established sport = :" + kPort);
    for (const int index : noticed) {
      if (!bench_.Says(node(index), "coordinator lost", before[index] + 1)) return false;
    }
    return why.empty();
  }

  Subprocess& coordinator(int at) { return *coordinators_[at - 1]; }
  Subprocess& node(int index) { return *nodes_[index]; }
  bool AwaitStarts(int index, size_t count) {
    return bench_.Eventually([&] { return CountOf(node(index).out(), "up\n") >= count; });
  }
  std::string Describe() const {
    std::string text;
    for (const Bench::Node& any : coordinators_) text += any->Describe();
    for (const Bench::Node& any : nodes_) text += any->Describe();
    return text;
  }
  // "" or what is wrong: all that are named end with 0.
  std::string EndWith0(const std::vector<Subprocess*>& processes) {
    const std::string grown = bench_.CheckDescriptors();
    if (!grown.empty()) return grown;
    bench_.job().Touch("go");
    for (Subprocess* process : processes) {
      if (!bench_.Ends(*process, 0)) return "not all end with 0:" + Describe();
    }
    return "";
  }

 private:
  std::string Names(int index) const { return bench_.job().File("names" + std::to_string(index)); }

  Bench& bench_;
  const Hosts& hosts_;
  std::vector<Bench::Node> coordinators_;
  std::vector<Bench::Node> nodes_;
};

// Which coordinator a round belongs to is told by nobody; so each has a store of its own.
std::string StoreOf(const Subprocess& node) {
  const std::string out = node.out();
  const size_t at = out.rfind("MASTER_ADDR=");
  return at == std::string::npos ? "" : out.substr(at, out.find("up\n", at) - at);
}

// All follow the name: the second coordinator takes up the round, as one that was started again.
std::string MoveBoth(Bench& bench, const Hosts& hosts) {
  Job& job = bench.job();
  Meeting meeting(bench, hosts);
  const std::string broken = meeting.Start("1:2");
  if (!broken.empty()) return broken;
  const auto find_pids = [&] { return std::vector<int>{job.PidOfRank(0), job.PidOfRank(1)}; };
  const std::vector<int> pids = find_pids();
  for (const int index : {0, 1}) meeting.Move(index, 2);
  if (!meeting.Reset(1, {0, 1})) return "the fault did not fire:" + meeting.Describe();
  const auto is_judged = [&] {
    return find_pids() != pids || (CountOf(meeting.node(0).err(), "coordinator back") > 0 &&
                                   CountOf(meeting.node(1).err(), "coordinator back") > 0);
  };
  if (!bench.Eventually(is_judged)) return "it is not found:" + meeting.Describe();
  if (find_pids() != pids) return "workers are stopped for a name that moves";
  kill(pids[1], SIGKILL);
  if (!meeting.AwaitStarts(0, 2) || !meeting.AwaitStarts(1, 2)) {
    return "no restart by the second coordinator:" + meeting.Describe();
  }
  // A stop for the name, which is charged to nobody, may have come before the kill.
  if (CountOf(meeting.node(0).out(), "TORCHELASTIC_RESTART_COUNT=1\n") == 0) {
    return "workers are stopped for a name that moves";
  }
  const std::string end =
      meeting.EndWith0({&meeting.node(0), &meeting.node(1), &meeting.coordinator(2)});
  if (!end.empty()) return end;
  // It has had no round since, and waits for its nodes.
  meeting.coordinator(1).Signal(SIGTERM);
  if (!bench.Ends(meeting.coordinator(1), 128 + SIGTERM)) return meeting.Describe();
  const size_t rounds = CountOf(meeting.node(0).err(), " assigned run=");
  return rounds == 2 ? "" : "more than the restart's round:" + meeting.Describe();
}

// One node of an elastic job follows the name, and the job is in halves.
std::string MoveOne(Bench& bench, const Hosts& hosts) {
  Meeting meeting(bench, hosts);
  const std::string broken = meeting.Start("1:2");
  if (!broken.empty()) return broken;
  if (StoreOf(meeting.node(0)) != StoreOf(meeting.node(1))) return "two stores of one round";
  meeting.Move(1, 2);
  if (!meeting.Reset(1, {0, 1})) return "the fault did not fire:" + meeting.Describe();
  if (!meeting.AwaitStarts(0, 2) || !meeting.AwaitStarts(1, 2)) {
    return "a half does not go on:" + meeting.Describe();
  }
  const std::string alone = "; going on with 1 node and 1 rank instead of 2 and 2";
  const std::string lost = " is lost: its connection closed, and it has not come back";
  if (CountOf(meeting.node(0).err(), lost + alone) != 1 ||
      CountOf(meeting.node(1).err(), "has not come back to the restarted coordinator" + alone) !=
          1) {
    return "the halves are not told of:" + meeting.Describe();
  }
  if (StoreOf(meeting.node(0)) == StoreOf(meeting.node(1))) return "two rounds have one store";
  // No node with a round of another coordinator gets in again.
  meeting.Move(1, 1);
  if (!meeting.Reset(2, {1})) return "the fault did not fire:" + meeting.Describe();
  if (!bench.Ends(meeting.node(1), 121)) return "it does not end:" + meeting.Describe();
  const std::string refused = " claims round 2 of epoch ";
  if (CountOf(meeting.node(1).err(), refused) != 1 ||
      CountOf(meeting.node(1).err(), ", which no coordinator of this job gave out") != 1) {
    return "nobody is told why:" + meeting.Describe();
  }
  if (CountOf(meeting.node(0).err(), " assigned run=") != 2 || bench.job().PidOfRank(0) == 0) {
    return "the other half is disturbed:" + meeting.Describe();
  }
  return meeting.EndWith0({&meeting.node(0), &meeting.coordinator(1)});
}

// One node of a job that needs both follows the name: both wait, and meet when it is back.
std::string MoveOneOfTwo(Bench& bench, const Hosts& hosts) {
  Meeting meeting(bench, hosts);
  const std::string broken = meeting.Start("2");
  if (!broken.empty()) return broken;
  meeting.Move(1, 2);
  if (!meeting.Reset(1, {0, 1})) return "the fault did not fire:" + meeting.Describe();
  for (const int index : {0, 1}) {
    if (!bench.Says(meeting.node(index), "1 of 2 nodes, waiting for 1 more (")) {
      return "a node does not wait for the other one:" + meeting.Describe();
    }
  }
  if (!bench.Eventually([&] { return bench.job().PidsOfRank(0).empty(); }) ||
      !bench.job().PidsOfRank(1).empty()) {
    return "a worker runs without the other node:" + meeting.Describe();
  }
  meeting.Move(1, 1);
  if (!meeting.Reset(2, {1})) return "the fault did not fire:" + meeting.Describe();
  if (!meeting.AwaitStarts(0, 2) || !meeting.AwaitStarts(1, 2)) {
    return "no round with both:" + meeting.Describe();
  }
  if (CountOf(meeting.node(0).out(), "TORCHELASTIC_RESTART_COUNT=0\n") != 2) {
    return "it is charged:" + meeting.Describe();
  }
  return meeting.EndWith0({&meeting.node(0), &meeting.node(1), &meeting.coordinator(1)});
}

// Hosts, where connections between them can be reset. Null, with the reason in `why`.
std::unique_ptr<Hosts> MakeHosts(std::string* why) {
  const rendezvous::ForeignServer silent("");
  const UniqueFd connection = rendezvous::ConnectTo(silent.port());
  Subprocess ss({"/bin/sh", "-c", "ss -K dport = :" + std::to_string(silent.port())});
  ss.Wait();
  pollfd reset{.fd = connection.get(), .events = POLLIN, .revents = 0};
  if (poll(&reset, 1, 2000) == 1) return Hosts::Make(4, why);
  *why = "ss -K resets no connection (iproute2, CONFIG_INET_DIAG_DESTROY) " + ss.err();
  return nullptr;
}

TEST_CASE("F17: a second coordinator to which the name moves takes up the round of all") {
  std::string why;
  const auto hosts = MakeHosts(&why);
  if (hosts == nullptr) return SkipTest("no hosts of our own here: " + why);
  CheckHoldsBy(
      "a coordinator that is started again takes up the round",
      [&](Bench& bench) { return MoveBoth(bench, *hosts); },
      "workers are stopped for a name that moves");
}

TEST_CASE("F17: coordinators between which a job is divided give out rounds that do not mix") {
  std::string why;
  const auto hosts = MakeHosts(&why);
  if (hosts == nullptr) return SkipTest("no hosts of our own here: " + why);
  CheckHolds([&](Bench& bench) { return MoveOne(bench, *hosts); });
  CheckHolds([&](Bench& bench) { return MoveOneOfTwo(bench, *hosts); });
}

}  // namespace
}  // namespace ddprun::testing
