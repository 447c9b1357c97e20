// --rdzv-backend=etcd while a part of etcd is cut off from the rest and the agents keep their
// network.
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

constexpr char kHosts[] = "coordinator hosted here";
constexpr char kBack[] = "coordinator back";
constexpr char kLost[] = "coordinator lost";

// Members of etcd on hosts 1 to 3, and agents on hosts of their own behind them.
struct Apart {
  Apart(Hosts& given, const std::string& run)
      : hosts(given),
        etcd({.members = 3,
              .netns = {hosts.Name(1), hosts.Name(2), hosts.Name(3)},
              .addresses = {hosts.Address(1), hosts.Address(2), hosts.Address(3)}}),
        job(etcd, run) {}

  // Two nodes, whose agents ask `first` before the other members.
  void StartNodes(size_t first, const std::string& conf) {
    std::string endpoints = etcd.endpoint(first);
    for (size_t i = 0; i < etcd.size(); ++i) {
      if (i != first) endpoints += "," + etcd.endpoint(i);
    }
    for (int host = 4; host <= 5; ++host) {
      job.StartNode("2",
                    {"--max-restarts=1", "--rdzv-endpoint=" + endpoints, "--rdzv-conf=" + conf},
                    {.netns = hosts.Name(host)});
    }
    job.AwaitWorkers(0, 2);
  }

  bool TakesWrites(size_t member) const {
    return etcd.Ctl({"put", "test-of-writes", "z"}, static_cast<int>(member)) == "OK\n";
  }
  // Waits until a lease of so many seconds, as etcd counts them, is over. A leader's has 3.
  bool OutliveALease(size_t member, int seconds) const {
    const int asked = static_cast<int>(member);
    // "lease 32695410dcc0ca06 granted with TTL(4s)"
    const std::string granted = etcd.Ctl({"lease", "grant", std::to_string(seconds)}, asked);
    if (!granted.starts_with("lease ")) return false;
    const std::string lease = granted.substr(6, granted.find(' ', 6) - 6);
    return Eventually([&] {
      const std::string left = etcd.Ctl({"lease", "list"}, asked);
      return left.starts_with("found ") && left.find(lease) == std::string::npos;
    });
  }
  size_t CountAll(const std::string& text) const {
    size_t count = 0;
    for (size_t i = 0; i < job.size(); ++i) count += job.Count(i, text);
    return count;
  }

  Hosts& hosts;
  EtcdCluster etcd;
  EtcdJob job;
};

void CutOff(bool is_leader) {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  std::string why;
  const std::unique_ptr<Hosts> hosts = Hosts::Make(5, &why);
  if (hosts == nullptr) return SkipTest(why);
  Apart on(*hosts, "member");
  EtcdJob& job = on.job;
  const size_t leading = on.etcd.LeadingMember();
  const size_t cut = is_leader ? leading : (leading + 1) % 3, other = (leading + 2) % 3;
  on.StartNodes(cut, "join_timeout=60");
  const std::vector<int> pids = job.Pids(2);
  hosts->SetLink(static_cast<int>(cut) + 1, false);
  REQUIRE(Eventually([&] { return on.TakesWrites(other); }));
  CHECK_FALSE(on.TakesWrites(cut));
  REQUIRE(on.OutliveALease(other, 4));
  CHECK_MESSAGE(job.Pids(2) == pids, job.Describe());
  kill(pids[1], SIGKILL);
  job.AwaitWorkers(1, 2);
  const std::vector<int> next = job.Pids(2);
  hosts->SetLink(static_cast<int>(cut) + 1, true);
  REQUIRE(Eventually([&] { return on.TakesWrites(cut); }));
  REQUIRE(on.OutliveALease(cut, 2));
  CHECK_MESSAGE(job.Pids(2) == next, job.Describe());
  job.Finish();
  job.CheckAllEndWith(0);
  CHECK(job.Keys() == "");
  CHECK_MESSAGE(on.CountAll(kHosts) == 1, job.Describe());
  CHECK_MESSAGE(on.CountAll(kLost) == 0, job.Describe());
}

TEST_CASE("etcd: a member that follows is cut off: the job does not notice, nor when it is back") {
  CutOff(/*is_leader=*/false);
}

TEST_CASE("etcd: its leader is cut off: the job does not notice, nor when it is back") {
  CutOff(/*is_leader=*/true);
}

TEST_CASE("etcd: an agent that reaches only a member that is cut off says so, and joins later") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  std::string why;
  const std::unique_ptr<Hosts> hosts = Hosts::Make(3, &why);
  if (hosts == nullptr) return SkipTest(why);
  Apart on(*hosts, "alone");
  EtcdJob& job = on.job;
  hosts->SetLink(1, false);
  REQUIRE(Eventually([&] { return on.TakesWrites(1) && !on.TakesWrites(0); }));
  const std::string reason = "last try: etcd at " + on.etcd.endpoint(0) +
                             ": it hears of no leader: it is cut off from most members, or they "
                             "elect one (etcdserver: no leader)";
  job.StartNode("1", {"--rdzv-conf=join_timeout=10"}, {.netns = hosts->Name(1)});
  CHECK_MESSAGE(job.node(0).Wait() == 121, job.Describe());
  CHECK_MESSAGE(job.node(0).err() ==
                    Contains(" within 10 s; see that it runs and answers this node; " + reason),
                job.Describe());
  job.StartNode("1", {"--rdzv-conf=join_timeout=60"}, {.netns = hosts->Name(1)});
  CHECK_MESSAGE(job.node(1).WaitForErr(reason), job.Describe());
  hosts->SetLink(1, true);
  job.AwaitWorkers(0, 1);
  job.Finish();
  CHECK_MESSAGE(job.node(1).Wait() == 0, job.Describe());
  CHECK(job.Keys() == "");
}

void Swallow(const Hosts& hosts, int from, int to, bool is_on);

TEST_CASE("etcd: the leader is cut off from the nodes alone: they go on, and it stands aside") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  std::string why;
  const std::unique_ptr<Hosts> hosts = Hosts::Make(4, &why);
  if (hosts == nullptr) return SkipTest(why);
  EtcdCluster etcd({.members = 1, .netns = {hosts->Name(4)}, .addresses = {hosts->Address(4)}});
  EtcdJob job(etcd, "aside");
  for (int host = 1; host <= 3; ++host) {
    job.StartNode("2:3", {"--max-restarts=1", "--rdzv-conf=last_call_timeout=60"},
                  {.netns = hosts->Name(host)});
  }
  job.AwaitWorkers(0, 3);
  const size_t leader = job.Leading();
  const int cut = static_cast<int>(leader) + 1;
  for (int host = 1; host <= 3; ++host) {
    if (host != cut) Swallow(*hosts, cut, host, true);
  }
  for (size_t i = 0; i < job.size(); ++i) {
    if (i == leader) continue;
    REQUIRE_MESSAGE(job.node(i).WaitForErr("going on with 2 nodes and 2 ranks"), job.Describe());
  }
  CHECK_MESSAGE(job.node(leader).err() == Contains("leaves its place to another"), job.Describe());
  for (int host = 1; host <= 3; ++host) {
    if (host != cut) Swallow(*hosts, cut, host, false);
  }
  REQUIRE_MESSAGE(job.node(leader).WaitForErr(kBack), job.Describe());
  job.Finish();
  job.CheckAllEndWith(0);
  CHECK(job.Keys() == "");
}

// An etcd on host 1, and two agents whose hosts have one address, by which each is to be reached.
struct Namesakes {
  explicit Namesakes(Hosts& hosts)
      : etcd({.members = 1, .netns = {hosts.Name(1)}, .addresses = {hosts.Address(1)}}),
        job(etcd, "namesakes") {
    for (const int host : {2, 3}) hosts.AddAddress(host, kAddress);
  }
  static constexpr char kAddress[] = "10.77.0.100";
  const std::vector<std::string> options = {std::string("--local-addr=") + kAddress,
                                            "--rdzv-conf=join_timeout=8"};
  EtcdCluster etcd;
  EtcdJob job;
};

TEST_CASE(
    "etcd: a node with the address of the leader's machine says so, and the leader leads on") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  std::string why;
  const std::unique_ptr<Hosts> hosts = Hosts::Make(3, &why);
  if (hosts == nullptr) return SkipTest(why);
  Namesakes on(*hosts);
  EtcdJob& job = on.job;
  job.StartNode("2", on.options, {.netns = hosts->Name(2)});
  REQUIRE_MESSAGE(job.node(0).WaitForErr(kHosts), job.Describe());
  std::vector<std::string> argv = {
      "/usr/bin/unshare", "--uts", "/bin/sh", "-c", "hostname other && exec \"$@\"", "sh",
      Runfile("ddprun")};
  const std::vector<std::string> words = job.Options("2", on.options);
  argv.insert(argv.end(), words.begin(), words.end());
  argv.push_back("/bin/true");
  const auto other = job.job().RunProgram(argv, {.netns = hosts->Name(3)});
  CHECK_MESSAGE(other->Wait() == 121, other->Describe());
  CHECK_MESSAGE(
      other->err() == Contains("leads the job at 10.77.0.100, which is an address of this "
                               "machine, too: give each node a --local-addr"),
      other->Describe());
  CHECK(job.node(0).Wait() == 121);
  CHECK_MESSAGE(job.Count(0, kHosts) == 1, job.Describe());
}

TEST_CASE("etcd: two machines with one address and one name do not take the lead in turns") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  std::string why;
  const std::unique_ptr<Hosts> hosts = Hosts::Make(3, &why);
  if (hosts == nullptr) return SkipTest(why);
  Namesakes on(*hosts);
  EtcdJob& job = on.job;
  for (const int host : {2, 3}) job.StartNode("2", on.options, {.netns = hosts->Name(host)});
  job.CheckAllEndWith(121);
  CHECK_MESSAGE(job.Count(0, kHosts) + job.Count(1, kHosts) <= 3, job.Describe());
  const std::string told = job.node(0).err() + job.node(1).err();
  CHECK_MESSAGE(told == Contains("etcd says that it leads: give each node a --local-addr"), told);
}

// What `from` sends to `to` is lost on the way, and nobody is told.
void Swallow(const Hosts& hosts, int from, int to, bool is_on) {
  REQUIRE(RunIp("-n " + hosts.Name(from) + " route " + (is_on ? "add" : "del") + " blackhole " +
                hosts.Address(to) + "/32") == "");
}

TEST_CASE(
    "etcd: the hosting agent reaches only a member that is cut off: another takes over, and no "
    "worker is disturbed") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  std::string why;
  const std::unique_ptr<Hosts> hosts = Hosts::Make(5, &why);
  if (hosts == nullptr) return SkipTest(why);
  Apart on(*hosts, "minority");
  EtcdJob& job = on.job;
  const size_t cut = on.etcd.LeadingMember();
  // A node that nobody hears is lost only long after this test.
  on.StartNodes(cut, "keep_alive_interval=60,keep_alive_max_attempt=3");
  const std::vector<int> pids = job.Pids(2);
  const size_t leader = job.Leading();
  const auto set_cut = [&](bool is_cut) {
    for (int member = 1; member <= 3; ++member) {
      if (member == static_cast<int>(cut) + 1) continue;
      Swallow(*hosts, member, static_cast<int>(cut) + 1, is_cut);
      Swallow(*hosts, member, static_cast<int>(leader) + 4, is_cut);
    }
  };
  set_cut(true);
  REQUIRE_MESSAGE(job.node(leader).WaitForErr("has not renewed its lease for 15 s"),
                  job.Describe());
  static_cast<void>(job.SecondsUntilLeading(2));
  REQUIRE_MESSAGE(job.node(1 - leader).WaitForErr(kBack), job.Describe());
  CHECK(job.Count(leader, kHosts) == 1);
  CHECK_MESSAGE(job.Pids(2) == pids, job.Describe());
  set_cut(false);
  REQUIRE_MESSAGE(job.node(leader).WaitForErr(kBack), job.Describe());
  CHECK_MESSAGE(job.Pids(2) == pids, job.Describe());
  kill(pids[1], SIGKILL);
  job.AwaitWorkers(1, 2);
  job.Finish();
  job.CheckAllEndWith(0);
  CHECK(job.Keys() == "");
}

}  // namespace
}  // namespace ddprun::testing
