// --rdzv-backend=etcd with a real etcd: jobs form, and another agent takes over.
#include <signal.h>

#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/e2e/etcd_job.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

constexpr char kBack[] = "coordinator back";

TEST_CASE("etcd: jobs of one, two and three agents form, end, and leave nothing behind") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd;
  for (const int nodes : {1, 2, 3}) {
    EtcdJob job(etcd, "forms");
    job.StartNodes(nodes, std::to_string(nodes));
    job.AwaitWorkers(0, nodes);
    CHECK(job.Keys() == Contains("/ddprun/forms/leader\nddprun 1 127.0.0.1:"));
    job.Finish();
    job.CheckAllEndWith(0);
    CHECK(job.Keys() == "");
  }
  CHECK(etcd.Ctl({"lease", "list"}) == "found 0 leases\n");
}

TEST_CASE("etcd: two jobs with ids of their own do not meet") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd({.members = 1});
  EtcdJob a(etcd, "a"), b(etcd, "a/job");
  a.StartNodes(2, "2");
  b.StartNodes(1, "1");
  a.AwaitWorkers(0, 2);
  b.AwaitWorkers(0, 1);
  b.Finish();
  b.CheckAllEndWith(0);
  CHECK(a.Keys() != "");
  CHECK(b.Keys() == "");
  a.Finish();
  a.CheckAllEndWith(0);
  CHECK(etcd.KeysUnder("/ddprun") == "");
}

TEST_CASE("etcd: a failed worker restarts the job, and its code ends it, as ever") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd({.members = 1});
  EtcdJob job(etcd, "fails");
  job.StartNodes(2, "2", {"--max-restarts=1"});
  job.AwaitWorkers(0, 2);
  kill(job.job().PidOfRank(1), SIGKILL);
  job.AwaitWorkers(1, 2);
  kill(job.job().PidOfRank(0), SIGKILL);
  job.CheckAllEndWith(128 + SIGKILL);
  CHECK(job.Keys() == "");
}

TEST_CASE("etcd: the hosting agent is killed: another takes over, and goes on without its node") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd;
  EtcdJob job(etcd, "killed");
  job.StartNodes(3, "2:3", {"--max-restarts=3", "--rdzv-conf=last_call_timeout=60"});
  job.AwaitWorkers(0, 3);
  const size_t leader = job.Leading();
  job.Kill(leader);
  job.CheckTakesOver("the hosting agent's SIGKILL", 1);
  // Its node is lost, as any: the others go on in a round of their own.
  REQUIRE_MESSAGE(Eventually([&] { return job.job().HasWorker(1) && !job.job().HasWorker(2); }),
                  job.Describe());
  for (size_t i = 0; i < job.size(); ++i) {
    REQUIRE_MESSAGE(job.node(i).WaitForErr("going on with 2 nodes and 2 ranks"), job.Describe());
  }
  job.Finish();
  job.CheckAllEndWith(0);
  CHECK(job.Keys() == "");
}

TEST_CASE("etcd: losses of hosting agents' nodes are counted once each, by whoever takes over") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd({.members = 1});
  EtcdJob job(etcd, "losses");
  job.StartNodes(3, "1:3", {"--max-node-losses=1", "--rdzv-conf=last_call_timeout=60"});
  job.AwaitWorkers(0, 3);
  job.Kill(job.Leading());
  for (size_t i = 0; i < job.size(); ++i) {
    REQUIRE_MESSAGE(job.node(i).WaitForErr("going on with 2 nodes and 2 ranks"), job.Describe());
  }
  // A record of version 2: something was counted.
  REQUIRE_MESSAGE(
      Eventually([&] { return job.Keys().find("\nddprun-job 2 ") != std::string::npos; }),
      job.Keys());
  job.Kill(job.Leading());
  REQUIRE_MESSAGE(job.node(0).Wait() == 121, job.Describe());
  CHECK_MESSAGE(job.node(0).err() == Contains("(--max-node-losses=1"), job.Describe());
  CHECK(job.Keys() == "");
}

TEST_CASE("etcd: an agent that leads a second time does not say again whom it trusts") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd({.members = 1});
  EtcdJob job(etcd, "again");
  job.StartNode("1:2", {"--rdzv-conf=last_call_timeout=1"});
  job.AwaitWorkers(0, 1);
  // With its lease it loses its place, and takes it once more.
  std::stringstream leases(etcd.Ctl({"lease", "list"}));
  std::string lease;
  std::getline(leases, lease);  // "found 2 leases"
  while (std::getline(leases, lease)) etcd.Ctl({"lease", "revoke", lease});
  static_cast<void>(job.SecondsUntilLeading(2));
  job.Finish();
  job.CheckAllEndWith(0);
  CHECK_MESSAGE(job.Count(0, "ddprun: the network is trusted") == 1, job.Describe());
}

TEST_CASE("etcd: of a job whose agents were all killed nothing is left when its leases end") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd;
  EtcdJob job(etcd, "gone");
  job.StartNodes(2, "2", {"--rdzv-conf=join_timeout=15"});
  job.AwaitWorkers(0, 2);
  REQUIRE(Eventually([&] { return job.Keys().find("/ddprun/gone/job\n") != std::string::npos; }));
  // Both at once: none takes over.
  for (size_t i = 0; i < 2; ++i) job.node(i).Signal(SIGSTOP);
  for (size_t i = 0; i < 2; ++i) job.Kill(0);
  CHECK(Eventually([&] { return job.Keys() == ""; }));
  CHECK(etcd.Ctl({"lease", "list"}) == "found 0 leases\n");
}

TEST_CASE("etcd: a job that is stopped as a whole leaves the next one of its id no restarts") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd({.members = 1});
  const std::vector<std::string> options = {"--max-restarts=3"};
  EtcdJob job(etcd, "stopped");
  job.StartNodes(2, "1:2", options);
  job.AwaitWorkers(0, 2);
  kill(job.job().PidOfRank(1), SIGKILL);
  job.AwaitWorkers(1, 2);
  for (size_t i = 0; i < job.size(); ++i) job.node(i).Signal(SIGTERM);
  job.CheckAllEndWith(128 + SIGTERM);
  CHECK(job.Keys() == "");
  EtcdJob next(etcd, "stopped");
  next.StartNodes(2, "1:2", options);
  next.AwaitWorkers(0, 2);
  next.Finish();
  next.CheckAllEndWith(0);
  CHECK_MESSAGE(next.Describe() != Contains("the coordinator was restarted"), next.Describe());
}

TEST_CASE(
    "etcd: an agent that leaves hands its place over, and the next job of the id is a new one") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd;
  EtcdJob job(etcd, "leaves");
  job.StartNodes(3, "2:3", {"--max-restarts=3", "--rdzv-conf=last_call_timeout=60"});
  job.AwaitWorkers(0, 3);
  const size_t leader = job.Leading();
  job.node(leader).Signal(SIGTERM);
  REQUIRE(job.node(leader).Wait() == 128 + SIGTERM);
  job.CheckTakesOver("the hosting agent's SIGTERM and end", 2);
  for (size_t i = 0; i < job.size(); ++i) {
    if (i == leader) continue;
    REQUIRE_MESSAGE(job.node(i).WaitForErr("going on with 2 nodes and 2 ranks"), job.Describe());
  }
  job.Finish();
  for (size_t i = 0; i < job.size(); ++i) {
    if (i != leader) REQUIRE_MESSAGE(job.node(i).Wait() == 0, job.Describe());
  }
  CHECK(job.Keys() == "");
}

TEST_CASE(
    "etcd: with a token all is in TLS, a takeover too, and a node with another displaces nobody") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd;
  EtcdJob job(etcd, "token");
  const Subprocess::Options with_token{.env = {{"DDPRUN_TOKEN", std::string(64, '7')}}};
  for (int i = 0; i < 2; ++i) job.StartNode("2", {}, with_token);
  job.AwaitWorkers(0, 2);
  const std::vector<int> pids = job.Pids(2);
  const size_t leader = job.Leading();
  const std::string keys = job.Keys();
  for (const std::string& other : {std::string(64, '8'), std::string()}) {
    EtcdJob wrong(etcd, "token");
    wrong.StartNode("2", {}, {.env = {{"DDPRUN_TOKEN", other}}});
    CHECK_MESSAGE(wrong.node(0).Wait() == 122, wrong.Describe());
    CHECK_MESSAGE(wrong.node(0).err() == Contains("all nodes need the same token"),
                  wrong.Describe());
  }
  CHECK(job.Keys() == keys);
  job.node(leader).Signal(SIGSTOP);
  job.CheckTakesOver("the SIGSTOP of a hosting agent with a token", 2);
  job.node(leader).Signal(SIGCONT);
  REQUIRE_MESSAGE(job.node(leader).WaitForErr(kBack), job.Describe());
  CHECK(job.Pids(2) == pids);
  job.Finish();
  job.CheckAllEndWith(0);
  CHECK(job.Keys() == "");
}

TEST_CASE("etcd: the hosting agent stands still: its lease ends, and no worker is disturbed") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd;
  EtcdJob job(etcd, "stopped");
  job.StartNodes(3, "3");
  job.AwaitWorkers(0, 3);
  const std::vector<int> pids = job.Pids(3);
  const size_t leader = job.Leading();
  job.node(leader).Signal(SIGSTOP);
  job.CheckTakesOver("the hosting agent's SIGSTOP", 2);
  job.node(leader).Signal(SIGCONT);
  REQUIRE_MESSAGE(job.node(leader).WaitForErr(kBack), job.Describe());
  CHECK(job.Pids(3) == pids);
  job.Finish();
  job.CheckAllEndWith(0);
  CHECK_FALSE(job.job().HasFile("up0.1"));
  CHECK(job.Keys() == "");
}

}  // namespace
}  // namespace ddprun::testing
