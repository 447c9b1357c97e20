// Which network interface the workers' libraries are told: --network, and Gloo's own where the
// machine's name leads to loopback.
#include <doctest/doctest.h>

#include <fstream>

#include "rendezvous/net/socket_address.h"
#include "tests/e2e/job.h"
#include "tests/support/netns.h"
#include "tests/support/skip.h"
#include "tests/support/torch_python.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;

const std::vector<std::string> kSteps = {"env:NCCL_SOCKET_IFNAME", "env:GLOO_SOCKET_IFNAME"};

// A job of two hosts.
class TwoHosts {
 public:
  TwoHosts() { hosts_ = Hosts::Make(2, &why_); }
  bool is_there() const { return hosts_ != nullptr; }
  std::string why() const { return "no network namespaces here: " + why_; }
  std::string Address(int host) const { return hosts_->Address(host); }

  // What stands at /etc/hosts of a host whose own name is at `own_address`.
  Subprocess::Options On(int host, const std::string& own_address) {
    const std::string file = job_.File("hosts" + std::to_string(host));
    std::ofstream(file) << "127.0.0.1 localhost\n"
                        << own_address << " " << rendezvous::HostName() << "\n";
    return {.netns = hosts_->Name(host), .hosts_file = file};
  }
  std::vector<std::string> Options() const {
    return {"--nnodes=2", "--nproc-per-node=1", "--rdzv-id=" + job_.id(), "--rdzv-backend=c10d",
            "--rdzv-endpoint=" + Address(1) + ":29400"};
  }
  Node Run(Subprocess::Options how) { return job_.Run(Options(), kSteps, std::move(how)); }
  Job& job() { return job_; }

 private:
  std::string why_;
  std::unique_ptr<Hosts> hosts_;
  Job job_;
};

// What is said of the network's interfaces: without the line on who is believed.
std::string SaidOf(const Subprocess& ddprun) {
  const std::string err = ddprun.err();
  return err.starts_with("ddprun: the network is trusted") ? err.substr(err.find('\n') + 1) : err;
}

void CheckOutputs(const Node& a, const Node& b, const std::string& gloo) {
  REQUIRE_MESSAGE(a->Wait() == 0, a->Describe(), b->Describe());
  REQUIRE_MESSAGE(b->Wait() == 0, a->Describe(), b->Describe());
  for (const Node* node : {&a, &b}) {
    const Subprocess& ddprun = **node;
    CHECK_MESSAGE(ddprun.out() == "NCCL_SOCKET_IFNAME=\nGLOO_SOCKET_IFNAME=" + gloo + "\n",
                  ddprun.Describe());
  }
}

TEST_CASE("network: Gloo is told the interface where a machine's name is at 127.0.1.1") {
  TwoHosts two;
  if (!two.is_there()) return SkipTest(two.why());
  const Node a = two.Run(two.On(1, "127.0.1.1"));
  const Node b = two.Run(two.On(2, "127.0.1.1"));
  CheckOutputs(a, b, "eth0");
  for (const Node* node : {&a, &b}) {
    CHECK_MESSAGE(SaidOf(**node).find("ddprun: GLOO_SOCKET_IFNAME=eth0 for the workers: by this "
                                      "machine's name, '" +
                                      rendezvous::HostName() + "', Gloo would") == 0,
                  (*node)->Describe());
  }
}

TEST_CASE("network: Gloo is told nothing where the machine's name leads to its address") {
  TwoHosts two;
  if (!two.is_there()) return SkipTest(two.why());
  const Node a = two.Run(two.On(1, two.Address(1)));
  const Node b = two.Run(two.On(2, two.Address(2)));
  CheckOutputs(a, b, "");
  CHECK(SaidOf(*a) + SaidOf(*b) == "");
}

TEST_CASE("network: a name that is another machine's address leaves Gloo to loopback, too") {
  TwoHosts two;
  if (!two.is_there()) return SkipTest(two.why());
  const Node a = two.Run(two.On(1, "10.77.0.99"));
  const Node b = two.Run(two.On(2, "10.77.0.99"));
  CheckOutputs(a, b, "eth0");
}

TEST_CASE("network: the user's own GLOO_SOCKET_IFNAME stays, and nothing is said") {
  TwoHosts two;
  if (!two.is_there()) return SkipTest(two.why());
  std::vector<Node> nodes;
  for (const int host : {1, 2}) {
    Subprocess::Options how = two.On(host, "127.0.1.1");
    how.env["GLOO_SOCKET_IFNAME"] = "lo";
    nodes.push_back(two.Run(how));
  }
  CheckOutputs(nodes[0], nodes[1], "lo");
  CHECK(SaidOf(*nodes[0]) + SaidOf(*nodes[1]) == "");
}

// Without the variable the second rank connects to itself and the group is never formed.
TEST_CASE("network: PyTorch's Gloo meets across hosts whose names are at 127.0.1.1") {
  const std::string& python = FindTorchPython().python;
  if (python.empty()) return SkipWithoutTorch();
  TwoHosts two;
  if (!two.is_there()) return SkipTest(two.why());
  const std::string script = two.job().File("sum.py");
  std::ofstream(script) << "import datetime, torch, torch.distributed as dist\n"
                           "dist.init_process_group('gloo', "
                           "timeout=datetime.timedelta(seconds=40))\n"
                           "total = torch.ones(1)\n"
                           "dist.all_reduce(total)\n"
                           "print('sum', int(total))\n"
                           "dist.destroy_process_group()\n";
  std::vector<Node> nodes;
  for (const int host : {1, 2}) {
    Subprocess::Options how = two.On(host, "127.0.1.1");
    how.env = {{"PYTHON_EXEC", python}, {"PYTHONWARNINGS", "ignore"}, {"GLOO_SOCKET_IFNAME", ""}};
    std::vector<std::string> arguments = two.Options();
    arguments.push_back(script);
    nodes.push_back(two.job().RunRaw(arguments, how));
  }
  for (const Node& node : nodes) {
    REQUIRE_MESSAGE(node->Wait(std::chrono::seconds(200)) == 0, node->Describe());
    CHECK_MESSAGE(node->out() == "sum 2\n", node->Describe());
  }
}

TEST_CASE("network: --network names the interface for NCCL and for Gloo") {
  Job job;
  auto ddprun = job.Run({"--standalone", "--network=lo"}, kSteps);
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out() == "NCCL_SOCKET_IFNAME==lo\nGLOO_SOCKET_IFNAME=lo\n");
  CHECK(ddprun->err() == "");
}

TEST_CASE("network: --network wins over another value of the environment, and says so") {
  Job job;
  auto ddprun = job.Run({"--standalone", "--network=lo"}, kSteps,
                        {.env = {{"NCCL_SOCKET_IFNAME", "ib0"}, {"GLOO_SOCKET_IFNAME", "lo"}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out() == "NCCL_SOCKET_IFNAME==lo\nGLOO_SOCKET_IFNAME=lo\n");
  CHECK(ddprun->err() ==
        "ddprun: warning: --network 'lo' replaces NCCL_SOCKET_IFNAME=ib0 of the environment\n");
}

TEST_CASE("network: a name that is no interface of this machine is refused with those it has") {
  Job job;
  auto ddprun = job.Run({"--standalone"}, kSteps, {.env = {{"PET_NETWORK", "nowhere0"}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 2, ddprun->Describe());
  const std::string start =
      "ddprun: error: PET_NETWORK 'nowhere0': this machine has no such network interface; it has ";
  CHECK_MESSAGE(ddprun->err().find(start) == 0, ddprun->Describe());
  CHECK_MESSAGE(ddprun->err().find("lo", start.size()) != std::string::npos, ddprun->Describe());
}

}  // namespace
}  // namespace ddprun::testing
