// At which of its addresses a node of a job listens, by the kernel's own list.
#include <arpa/inet.h>
#include <doctest/doctest.h>

#include <array>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "rendezvous/core/rank_assignment.h"
#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/etcd_cluster.h"
#include "tests/support/netns.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;
using Words = std::vector<std::string>;

constexpr char kEverywhere[] = "everywhere";

// An address as /proc/net/tcp writes it: 32 bits at a time, in the machine's own order.
std::string IpOf(const std::string& hex) {
  std::array<uint32_t, 4> words{};
  for (size_t i = 0; i < hex.size() / 8; ++i) {
    words[i] = static_cast<uint32_t>(std::stoul(hex.substr(8 * i, 8), nullptr, 16));
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int family = hex.size() == 8 ? AF_INET : AF_INET6;
  return inet_ntop(family, words.data(), text.data(), text.size());
}

// Where anything listens in the network namespace of a process, but for loopback; kEverywhere
// stands for all addresses.
std::set<std::string> ListensAt(const Subprocess& process) {
  std::set<std::string> found;
  for (const char* table : {"tcp", "tcp6"}) {
    std::ifstream file("/proc/" + std::to_string(process.pid()) + "/net/" + table);
    std::string line;
    std::getline(file, line);  // the table's head
    while (std::getline(file, line)) {
      std::string number, local, remote, state;
      std::stringstream(line) >> number >> local >> remote >> state;
      if (state != "0A") continue;
      const std::string ip = IpOf(local.substr(0, local.find(':')));
      if (!rendezvous::IsLoopback(ip))
        found.insert(ip == "::" || ip == "0.0.0.0" ? kEverywhere : ip);
    }
  }
  return found;
}

using Places = std::set<std::string>;

// Two hosts, or more, each with a second address of both kinds.
class Network {
 public:
  explicit Network(int count = 2) : hosts_(Hosts::Make(count, &why_)) {
    for (int i = 1; hosts_ != nullptr && i <= count; ++i) {
      hosts_->AddAddress(i, Second(i));
      hosts_->AddAddress(i, Ipv6(i));
    }
  }
  bool is_there() const { return hosts_ != nullptr; }
  std::string why() const { return "no network namespaces here: " + why_; }
  std::string First(int host) const { return hosts_->Address(host); }
  static std::string Second(int host) { return "10.77.0.20" + std::to_string(host); }
  static std::string Ipv6(int host) { return "fd77::" + std::to_string(host); }
  Subprocess::Options On(int host) const { return {.netns = hosts_->Name(host)}; }
  Hosts& hosts() { return *hosts_; }

 private:
  std::string why_;
  const std::unique_ptr<Hosts> hosts_;
};

Words Meeting(const std::string& endpoint_host, Words more = {}) {
  Words options = {"--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d",
                   "--rdzv-endpoint=" + endpoint_host + ":29400"};
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

// Its workers have found their store, say where it is, and wait.
Node Start(Job& job, Words options, Subprocess::Options how) {
  options.push_back("--rdzv-id=" + job.id());
  return job.Run(
      options,
      {"env:MASTER_ADDR", "connect", "touch:" + job.File("up{rank}"), "until:" + job.File("go")},
      std::move(how));
}

// Both nodes' workers run: where each node listens. Then the job ends.
void CheckPlaces(Job& job, const Node& a, const Places& of_a, const Node& b, const Places& of_b) {
  REQUIRE_MESSAGE(job.WaitForFile("up0"), a->Describe(), b->Describe());
  REQUIRE_MESSAGE(job.WaitForFile("up1"), a->Describe(), b->Describe());
  CHECK(ListensAt(*a) == of_a);
  CHECK(ListensAt(*b) == of_b);
  job.Touch("go");
  REQUIRE_MESSAGE(a->Wait() == 0, a->Describe(), b->Describe());
  REQUIRE_MESSAGE(b->Wait() == 0, a->Describe(), b->Describe());
}

// One node alone, which nobody else can reach, and which says nothing of a network.
void CheckAlone(Words options, Subprocess::Options how) {
  Job job;
  options.insert(options.begin(), {"--nnodes=1", "--nproc-per-node=1"});
  const Node alone = Start(job, options, std::move(how));
  REQUIRE_MESSAGE(job.WaitForFile("up0"), alone->Describe());
  CHECK(ListensAt(*alone) == Places{});
  job.Touch("go");
  REQUIRE_MESSAGE(alone->Wait() == 0, alone->Describe());
  CHECK_MESSAGE(alone->err().empty(), alone->Describe());
}

TEST_CASE("listeners: nodes listen at the addresses by which they meet, with a token and without") {
  Network network;
  if (!network.is_there()) return SkipTest(network.why());
  for (const char* token : {"", "a-token-of-thirty-two-characters"}) {
    for (const bool is_ipv6 : {false, true}) {
      Job job;
      CAPTURE(token);
      const auto how = [&](int host) {
        Subprocess::Options options = network.On(host);
        options.env["DDPRUN_TOKEN"] = token;
        return options;
      };
      const auto place = [&](int host) {
        return is_ipv6 ? Network::Ipv6(host) : network.First(host);
      };
      const Words options = Meeting(is_ipv6 ? "[" + place(1) + "]" : place(1));
      const Node b = Start(job, options, how(2));
      const Node a = Start(job, options, how(1));
      CheckPlaces(job, a, {place(1)}, b, {place(2)});
    }
  }
}

TEST_CASE("listeners: a port that is refused elsewhere answers by the way and on loopback") {
  Network network;
  if (!network.is_there()) return SkipTest(network.why());
  Job job;
  const Node a = Start(job, Meeting(network.First(1)), network.On(1));
  AwaitMissingNodes(*a);
  const auto answers = [&](const std::string& ip, int from) {
    Subprocess knock({"/bin/bash", "-c", "exec 3<>/dev/tcp/" + ip + "/29400"}, network.On(from));
    const bool is_open = knock.Wait() == 0;
    if (!is_open) CHECK(knock.err() == Contains("Connection refused"));
    return is_open;
  };
  CHECK(answers(network.First(1), 2));
  CHECK_FALSE(answers(Network::Second(1), 2));
  CHECK_FALSE(answers(Network::Ipv6(1), 2));
  for (const char* own : {"127.0.0.1", "127.0.1.1", "::1"}) CHECK(answers(own, 1));
  const Node b = Start(job, Meeting(network.First(1)), network.On(2));
  job.Touch("go");
  REQUIRE_MESSAGE(a->Wait() == 0, a->Describe(), b->Describe());
  REQUIRE_MESSAGE(b->Wait() == 0, a->Describe(), b->Describe());
}

TEST_CASE("listeners: --local_addr takes the way's place for the store, and static has one port") {
  Network network;
  if (!network.is_there()) return SkipTest(network.why());
  {
    Job job;
    const Words given = {"--local-addr=" + Network::Second(1)};
    const Node a = Start(job, Meeting(network.First(1), given), network.On(1));
    const Node b = Start(job, Meeting(network.First(1)), network.On(2));
    CheckPlaces(job, a, {network.First(1), Network::Second(1)}, b, {network.First(2)});
    CHECK(a->out().find("MASTER_ADDR=" + Network::Second(1) + "\n") == 0);
  }
  Job job;
  const auto options = [&](const std::string& rank) {
    return Words{"--nnodes=2", "--node-rank=" + rank, "--nproc-per-node=1",
                 "--master-addr=" + network.First(1), "--master-port=29500"};
  };
  const Node a = Start(job, options("0"), network.On(1));
  const Node b = Start(job, options("1"), network.On(2));
  CheckPlaces(job, a, {network.First(1)}, b, {});
}

// Debian's installer writes the machine's own name as 127.0.1.1 into its /etc/hosts: by which
// address the other machines know it, this one cannot tell.
TEST_CASE("listeners: where a name stands for loopback at home, every address is listened at") {
  Network network;
  if (!network.is_there()) return SkipTest(network.why());
  const auto at = [&](Job& job, int host, const std::string& address) {
    Subprocess::Options how = network.On(host);
    how.hosts_file = job.File("hosts" + std::to_string(host));
    std::ofstream(how.hosts_file) << "127.0.0.1 localhost\n" << address << " head-node\n";
    return how;
  };
  {
    Job job;
    const Node a = Start(job, Meeting("head-node"), at(job, 1, "127.0.1.1"));
    const Node b = Start(job, Meeting("head-node"), at(job, 2, network.First(1)));
    CheckPlaces(job, a, {kEverywhere}, b, {network.First(2)});
  }
  {
    Job job;
    const auto options = [](const std::string& rank) {
      return Words{"--nnodes=2", "--node-rank=" + rank, "--nproc-per-node=1",
                   "--master-addr=head-node"};
    };
    const Node a = Start(job, options("0"), at(job, 1, "127.0.1.1"));
    const Node b = Start(job, options("1"), at(job, 2, network.First(1)));
    CheckPlaces(job, a, {kEverywhere}, b, {});
  }
  // Its workers go to the same name, and so to loopback.
  Job job;
  const Words given = {"--local-addr=head-node"};
  const Node a = Start(job, Meeting(network.First(1), given), at(job, 1, "127.0.1.1"));
  const Node b = Start(job, Meeting(network.First(1)), at(job, 2, network.First(1)));
  CheckPlaces(job, a, {network.First(1), kEverywhere}, b, {network.First(2)});
  CHECK(a->out().find("MASTER_ADDR=head-node\n") == 0);
}

TEST_CASE("listeners: static on loopback listens there alone, one node also without an endpoint") {
  Network network;
  if (!network.is_there()) return SkipTest(network.why());
  const Words places = {"--master-addr=127.0.0.1", "--master-addr=localhost",
                        "--rdzv-endpoint=127.0.0.1:29500"};
  for (const std::string& place : places) {
    CAPTURE(place);
    Job job;
    const auto options = [&](const std::string& rank) {
      return Words{"--nnodes=2", "--node-rank=" + rank, "--nproc-per-node=1",
                   "--rdzv-backend=static", place};
    };
    const Node a = Start(job, options("0"), network.On(1));
    const Node b = Start(job, options("1"), network.On(1));
    CheckPlaces(job, a, {}, b, {});
    // That it waits a node says where the other one comes late; not that a network is trusted.
    for (const Node* node : {&a, &b}) {
      CHECK((*node)->err() != Contains("trusted"));
    }
  }
  CheckAlone({"--master-port=29500"}, network.On(1));
}

TEST_CASE("listeners: a node whose address changes is reached by the new one") {
  Network network(3);
  if (!network.is_there()) return SkipTest(network.why());
  Job job;
  const auto coordinator = job.RunRaw({"coordinator", "--bind=:29400"}, network.On(3));
  REQUIRE_MESSAGE(coordinator->WaitForErr("listening on"), coordinator->Describe());
  const auto options = [&](const std::string& rank) {
    return Meeting(network.First(3), {"--node-rank=" + rank});
  };
  const Node a = Start(job, options("0"), network.On(1));
  AwaitMissingNodes(*a);
  CHECK(ListensAt(*a) == Places{network.First(1)});
  // Both of its addresses, of which the kernel removes the second with the first.
  REQUIRE(RunIp("-n " + network.hosts().Name(1) + " -4 addr flush dev eth0") == "");
  REQUIRE_MESSAGE(a->WaitForErr("waiting for the coordinator at " + network.First(3)),
                  a->Describe());
  const size_t said = a->err().size();
  network.hosts().AddAddress(1, Network::Second(1));
  REQUIRE_MESSAGE(Eventually([&] {
                    return a->err().find("1 of 2 nodes, waiting for 1 more", said) !=
                           std::string::npos;
                  }),
                  a->Describe());
  const Node b = Start(job, options("1"), network.On(2));
  CheckPlaces(job, a, {network.First(1), Network::Second(1)}, b, {network.First(2)});
  CHECK(b->out().find("MASTER_ADDR=" + Network::Second(1) + "\n") == 0);
  REQUIRE_MESSAGE(coordinator->Wait() == 0, coordinator->Describe());
}

TEST_CASE("listeners: with etcd a node listens at the address by which it reaches etcd") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  Network network(3);
  if (!network.is_there()) return SkipTest(network.why());
  EtcdCluster etcd(
      {.members = 1, .netns = {network.hosts().Name(3)}, .addresses = {network.First(3)}});
  Job job;
  const Words options = {"--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=etcd",
                         "--rdzv-endpoint=" + etcd.endpoints()};
  const Node a = Start(job, options, network.On(1));
  const Node b = Start(job, options, network.On(2));
  CheckPlaces(job, a, {network.First(1)}, b, {network.First(2)});
}

TEST_CASE("listeners: one node with an etcd on its own machine listens on loopback alone") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  Network network(1);
  if (!network.is_there()) return SkipTest(network.why());
  EtcdCluster etcd({.members = 1, .netns = {network.hosts().Name(1)}, .addresses = {"127.0.0.1"}});
  CheckAlone({"--rdzv-id=alone", "--rdzv-backend=etcd", "--rdzv-endpoint=" + etcd.endpoints()},
             network.On(1));
}

}  // namespace
}  // namespace ddprun::testing
