// Agents on hosts of their own: which address of rank 0's node the workers are given.
#include <doctest/doctest.h>

#include <fstream>

#include "tests/e2e/job.h"
#include "tests/support/netns.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;

std::vector<std::string> Options(const std::string& endpoint_host, std::vector<std::string> more,
                                 const std::string& nodes = "2") {
  std::vector<std::string> options = {"--nnodes=" + nodes, "--nproc-per-node=1", "--rdzv-id=hosts",
                                      "--rdzv-backend=c10d",
                                      "--rdzv-endpoint=" + endpoint_host + ":29400"};
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

// Every rank prints the address it was given and proves that the store is there.
const std::vector<std::string> kSteps = {"print:rank {rank}", "env:MASTER_ADDR", "connect"};

std::string Output(int rank, const std::string& address) {
  return "rank " + std::to_string(rank) + "\nMASTER_ADDR=" + address + "\nconnected\n";
}

void CheckOutputs(const std::string& address, const Node& rank_0, const Node& rank_1) {
  REQUIRE_MESSAGE(rank_0->Wait() == 0, rank_0->Describe(), rank_1->Describe());
  REQUIRE_MESSAGE(rank_1->Wait() == 0, rank_0->Describe(), rank_1->Describe());
  CHECK_MESSAGE(rank_0->out() == Output(0, address), rank_0->Describe());
  CHECK_MESSAGE(rank_1->out() == Output(1, address), rank_1->Describe());
}

TEST_CASE("hosts: MASTER_ADDR is the address at which others see rank 0's node") {
  std::string why;
  const auto hosts = Hosts::Make(2, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  Job job;
  // The one that starts first is not the endpoint's.
  const Node b = job.Run(Options(hosts->Address(1), {}), kSteps, {.netns = hosts->Name(2)});
  const Node a = job.Run(Options(hosts->Address(1), {}), kSteps, {.netns = hosts->Name(1)});
  CheckOutputs(hosts->Address(1), a, b);
}

TEST_CASE("hosts: --local_addr is what others are told instead") {
  std::string why;
  const auto hosts = Hosts::Make(2, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  const std::string other = "10.77.0.201";
  hosts->AddAddress(1, other);
  Job job;
  const Node a = job.Run(Options(hosts->Address(1), {"--local-addr=" + other}), kSteps,
                         {.netns = hosts->Name(1)});
  const Node b = job.Run(Options(hosts->Address(1), {}), kSteps, {.netns = hosts->Name(2)});
  CheckOutputs(other, a, b);
}

TEST_CASE("hosts: over IPv6 MASTER_ADDR is an IPv6 address") {
  std::string why;
  const auto hosts = Hosts::Make(2, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  hosts->AddAddress(1, "fd77::1");
  hosts->AddAddress(2, "fd77::2");
  Job job;
  const Node b = job.Run(Options("[fd77::1]", {}), kSteps, {.netns = hosts->Name(2)});
  const Node a = job.Run(Options("[fd77::1]", {}), kSteps, {.netns = hosts->Name(1)});
  CheckOutputs("fd77::1", a, b);
}

TEST_CASE("hosts: a loopback --local_addr is not sent to another host") {
  std::string why;
  const auto hosts = Hosts::Make(2, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  Job job;
  const Node a = job.Run(Options(hosts->Address(1), {"--local-addr=127.0.0.1"}), kSteps,
                         {.netns = hosts->Name(1)});
  const Node b = job.Run(Options(hosts->Address(1), {}), kSteps, {.netns = hosts->Name(2)});
  CheckOutputs(hosts->Address(1), a, b);
}

TEST_CASE("hosts: two agents of one host and one of another agree on an address for all") {
  std::string why;
  const auto hosts = Hosts::Make(2, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  Job job;
  const std::string endpoint = hosts->Address(1);
  std::vector<Node> nodes;
  for (const int host : {2, 1, 1}) {
    nodes.push_back(job.Run(Options(endpoint, {}, "3"), {"env:MASTER_ADDR", "connect"},
                            {.netns = hosts->Name(host)}));
  }
  for (const Node& node : nodes) {
    REQUIRE_MESSAGE(node->Wait() == 0, node->Describe());
    CHECK_MESSAGE(node->out() == "MASTER_ADDR=" + endpoint + "\nconnected\n", node->Describe());
  }
}

// Debian's installer writes the machine's own name as 127.0.1.1 into its /etc/hosts, while the
// other machines know its address.
TEST_CASE("hosts: an endpoint whose name maps to 127.0.1.1 at home is reached from elsewhere") {
  std::string why;
  const auto hosts = Hosts::Make(2, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  const TempDir dir;
  const std::string at_home = dir.File("hosts1");
  const std::string elsewhere = dir.File("hosts2");
  std::ofstream(at_home) << "127.0.0.1 localhost\n127.0.1.1 head-node\n";
  std::ofstream(elsewhere) << "127.0.0.1 localhost\n" << hosts->Address(1) << " head-node\n";
  Job job;
  const Node b =
      job.Run(Options("head-node", {}), kSteps, {.netns = hosts->Name(2), .hosts_file = elsewhere});
  const Node a =
      job.Run(Options("head-node", {}), kSteps, {.netns = hosts->Name(1), .hosts_file = at_home});
  CheckOutputs(hosts->Address(1), a, b);
}

}  // namespace
}  // namespace ddprun::testing
