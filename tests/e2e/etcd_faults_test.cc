// --rdzv-backend=etcd while etcd itself, the network or whole nodes fail.
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/e2e/etcd_job.h"
#include "tests/support/contains.h"
#include "tests/support/netns.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

constexpr char kBack[] = "coordinator back";
constexpr char kLost[] = "coordinator lost";
constexpr char kNamed[] = "failed: killed by signal 9 (SIGKILL); the coordinator at 127.0.0.1:";

TEST_CASE("etcd: members that die, stop and come back disturb no worker") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd;
  EtcdJob job(etcd, "members");
  job.StartNodes(2, "2");
  job.AwaitWorkers(0, 2);
  const std::vector<int> pids = job.Pids(2);
  for (size_t member = 0; member < etcd.size(); ++member) {
    etcd.member(member).Signal(SIGSTOP);
    // A write needs a majority: the others go on without it.
    REQUIRE(Eventually([&] {
      return etcd.Ctl({"put", "test-of-writes", "y"}, static_cast<int>((member + 1) % 3)) == "OK\n";
    }));
    etcd.member(member).Signal(SIGCONT);
    REQUIRE(etcd.AwaitWrites());
    etcd.Restart(member);
    REQUIRE(etcd.AwaitWrites());
  }
  etcd.member(etcd.LeadingMember()).Signal(SIGKILL);
  REQUIRE(etcd.AwaitWrites());
  CHECK_MESSAGE(job.Pids(2) == pids, job.Describe());
  job.Finish();
  job.CheckAllEndWith(0);
  CHECK_FALSE(job.job().HasFile("up0.1"));
  CHECK(job.Keys() == "");
}

TEST_CASE("etcd: all of it stands still: workers go on, and with it the job") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd;
  EtcdJob job(etcd, "away");
  job.StartNodes(2, "2", {"--max-restarts=1"});
  job.AwaitWorkers(0, 2);
  const std::vector<int> pids = job.Pids(2);
  const size_t leader = job.Leading();
  etcd.SignalAll(SIGSTOP);
  // It has been silent for the lease and for as long as agents wait for a coordinator.
  REQUIRE_MESSAGE(job.node(leader).WaitForErr("has not renewed its lease for 15 s"),
                  job.Describe());
  for (size_t i = 0; i < job.size(); ++i) {
    REQUIRE_MESSAGE(job.node(i).WaitForErr("this node's workers go on without it up to"),
                    job.Describe());
  }
  CHECK(job.Pids(2) == pids);
  etcd.SignalAll(SIGCONT);
  for (size_t i = 0; i < job.size(); ++i) {
    REQUIRE_MESSAGE(job.node(i).WaitForErr(kBack), job.Describe());
  }
  CHECK(job.Pids(2) == pids);
  // It is the job that it was: one restart, and no more.
  kill(job.job().PidOfRank(1), SIGKILL);
  job.AwaitWorkers(1, 2);
  job.Finish();
  job.CheckAllEndWith(0);
  CHECK(job.Keys() == "");
}

TEST_CASE("etcd: all of it is killed and started again on its disks: workers go on") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd;
  EtcdJob job(etcd, "killed");
  job.StartNodes(2, "2");
  job.AwaitWorkers(0, 2);
  const std::vector<int> pids = job.Pids(2);
  etcd.SignalAll(SIGKILL);
  for (size_t member = 0; member < etcd.size(); ++member) etcd.Restart(member);
  REQUIRE(etcd.AwaitWrites());
  job.Finish();
  job.CheckAllEndWith(0);
  CHECK_FALSE(job.job().HasFile("up0.1"));
  CHECK(job.Keys() == "");
}

TEST_CASE("etcd: a worker that dies when all of it is gone is named at once, and in the report") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  bool hosts = false;
  SUBCASE("by the hosting agent") { hosts = true; }
  SUBCASE("by another agent") {}
  EtcdCluster etcd;
  EtcdJob job(etcd, "named");
  job.StartNodes(2, "2");
  job.AwaitWorkers(0, 2);
  const size_t leader = job.Leading();
  Subprocess& node = job.node(hosts ? leader : 1 - leader);
  const int pid = job.WorkerOf(hosts ? leader : 1 - leader);
  etcd.SignalAll(SIGKILL);
  // Before an agent knows it, which takes the lease's 15 s. One worker alone: for a few seconds the
  // coordinator may still have the others stopped, and what ends then is no failure of its agent's.
  kill(pid, SIGKILL);
  REQUIRE_MESSAGE(node.WaitForErr(kNamed), job.Describe());
  CHECK_MESSAGE(node.err() != Contains(kLost), job.Describe());
  for (size_t i = 0; i < job.size(); ++i) {
    job.node(i).Signal(SIGTERM);
    CHECK(job.node(i).Wait() == 128 + SIGTERM);
  }
  CHECK_MESSAGE(node.err() == Contains("Root Cause"), job.Describe());
  CHECK_MESSAGE(node.err() == Contains("exit code 143: ddprun's own, stopped by SIGTERM"),
                job.Describe());
}

TEST_CASE("etcd: its leader dies with the hosting agent's node: another takes over all the same") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd;
  EtcdJob job(etcd, "both");
  job.StartNodes(2, "2");
  job.AwaitWorkers(0, 2);
  const std::vector<int> pids = job.Pids(2);
  const size_t leader = job.Leading();
  etcd.member(etcd.LeadingMember()).Signal(SIGKILL);
  job.node(leader).Signal(SIGSTOP);
  job.CheckTakesOver("the end of etcd's leader and the hosting agent's SIGSTOP", 2);
  job.node(leader).Signal(SIGCONT);
  REQUIRE_MESSAGE(job.node(leader).WaitForErr(kBack), job.Describe());
  CHECK(job.Pids(2) == pids);
  job.Finish();
  job.CheckAllEndWith(0);
  CHECK(job.Keys() == "");
}

// Three hosts, each with a member of etcd and an agent.
struct Hosted {
  Hosted(Hosts& hosts, const std::string& run)
      : etcd({.members = 3,
              .netns = {hosts.Name(1), hosts.Name(2), hosts.Name(3)},
              .addresses = {hosts.Address(1), hosts.Address(2), hosts.Address(3)}}),
        job(etcd, run) {
    for (int i = 1; i <= 3; ++i) {
      job.StartNode("2:3", {"--max-restarts=1", "--rdzv-conf=last_call_timeout=60"},
                    {.netns = hosts.Name(i)});
    }
    job.AwaitWorkers(0, 3);
  }

  EtcdCluster etcd;
  EtcdJob job;
};

TEST_CASE(
    "etcd: the hosting agent's node is cut off: another takes over, with its lease or etcd's") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  std::string why;
  const std::unique_ptr<Hosts> hosts = Hosts::Make(3, &why);
  if (hosts == nullptr) return SkipTest(why);
  Hosted on(*hosts, "cut");
  EtcdJob& job = on.job;
  const size_t leader = job.Leading();
  const bool is_with_etcd = on.etcd.LeadingMember() == leader;
  hosts->SetLink(static_cast<int>(leader) + 1, false);
  const std::string with = is_with_etcd ? "with" : "without";
  job.CheckTakesOver("the hosting node was cut off " + with + " etcd's leader", 2);
  // The others lose its node like any other, and go on.
  for (size_t i = 0; i < job.size(); ++i) {
    if (i == leader) continue;
    REQUIRE_MESSAGE(job.node(i).WaitForErr("going on with 2 nodes and 2 ranks"), job.Describe());
  }
  // What was cut off says nothing to anybody: it may not.
  REQUIRE_MESSAGE(job.node(leader).WaitForErr(kLost), job.Describe());
  hosts->SetLink(static_cast<int>(leader) + 1, true);
  REQUIRE_MESSAGE(job.node(leader).WaitForErr(kBack), job.Describe());
  job.Finish();
  job.CheckAllEndWith(0);
}

}  // namespace
}  // namespace ddprun::testing
