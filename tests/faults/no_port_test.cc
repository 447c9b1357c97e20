// A machine on which every port that the kernel chooses by itself is taken.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/base/check.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/faults/bench.h"
#include "tests/support/contains.h"
#include "tests/support/netns.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

constexpr uint16_t kFirstPort = 40000;
constexpr int kPorts = 8;

// The ports of a host that the kernel chooses from: few.
class FewPorts {
 public:
  explicit FewPorts(std::string host) : host_(std::move(host)) {
    Subprocess narrow(
        {"/bin/sh", "-c",
         "echo " + std::to_string(kFirstPort) + " " + std::to_string(kFirstPort + kPorts - 1) +
             " >/proc/sys/net/ipv4/ip_local_port_range"},
        {.netns = host_});
    DDP_CHECK(narrow.Wait() == 0);
  }

  // Holds so many. Whether they were free at some time.
  bool Take(size_t count) {
    bool are_taken = false;
    // A thread may be on another host than the rest of its process, and its sockets stay there.
    std::thread([&] {
      const UniqueFd there(open(("/run/netns/" + host_).c_str(), O_RDONLY | O_CLOEXEC));
      DDP_CHECK(setns(there.get(), CLONE_NEWNET) == 0);
      are_taken = Eventually([&] {
        for (int i = 0; i < kPorts && sockets_.size() < count; ++i) TakeOne(kFirstPort + i);
        return sockets_.size() == count;
      });
    }).join();
    return are_taken;
  }
  void Release() { sockets_.clear(); }

 private:
  void TakeOne(int port) {
    UniqueFd fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(static_cast<uint16_t>(port));
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
      sockets_.push_back(std::move(fd));
    }
  }

  const std::string host_;
  std::vector<UniqueFd> sockets_;
};

// The endpoint is the first host's.
Bench::Node StartOn(Bench& bench, const Hosts& hosts, int index) {
  Job& job = bench.job();
  return bench.Run({"--nnodes=2", "--nproc-per-node=1", "--rdzv-id=" + job.id(),
                    "--rdzv-backend=c10d", "--rdzv-endpoint=" + hosts.Address(1) + ":29400"},
                   {"touch:" + job.File("up{rank}"), "connect", "until:" + job.File("go")},
                   {.netns = hosts.Name(index)});
}

constexpr char kWhatToDo[] = "widen net.ipv4.ip_local_port_range, or end what holds its ports";

// The agent has a port for its workers' store, and none is left for a connection when there is
// somebody to connect to. `descriptors`: of an agent in such a job that had its ports at once; 0:
// this one has them, and its number is put there.
std::string TakeAllButOne(Bench& bench, const Hosts& hosts, size_t& descriptors) {
  Job& job = bench.job();
  FewPorts ports(hosts.Name(2));
  const bool is_whole = descriptors == 0;
  const Bench::Node client = StartOn(bench, hosts, 2);
  if (!bench.Says(*client, "(last try: Connection refused)")) return client->Describe();
  if (!is_whole && !ports.Take(kPorts - 1)) return "the fault did not fire";
  const Bench::Node host = StartOn(bench, hosts, 1);
  if (!is_whole) {
    if (!bench.Says(*client, kWhatToDo)) return "nobody is told:" + client->Describe();
    if (job.HasFile("up0")) return "the fault did not fire:" + client->Describe();
    ports.Release();
  }
  if (!job.WaitForFile("up0") || !job.WaitForFile("up1")) {
    return "it does not join when there are ports again:" + client->Describe();
  }
  if (is_whole) descriptors = bench.SettledDescriptors(*client);
  bench.AllowDescriptors(*client, descriptors);
  const std::string grown = bench.CheckDescriptors();
  if (!grown.empty()) return grown;
  job.Touch("go");
  if (!bench.Ends(*client, 0) || !bench.Ends(*host, 0)) {
    return "a node does not end with 0:" + client->Describe() + host->Describe();
  }
  return CountOf(client->err(), kWhatToDo) == (is_whole ? 0 : 1)
             ? ""
             : "not told once:" + client->Describe();
}

// None is left, not even for the workers' store.
std::string TakeAll(Bench& bench, const Hosts& hosts) {
  FewPorts ports(hosts.Name(2));
  if (!ports.Take(kPorts)) return "the fault did not fire";
  const Bench::Node client = StartOn(bench, hosts, 2);
  if (!bench.Ends(*client, 120)) return "it does not end:" + client->Describe();
  return CountOf(client->err(), kWhatToDo) == 1 ? "" : "nobody is told:" + client->Describe();
}

TEST_CASE("F28: an agent waits for a port for its connection, and says what to do") {
  size_t descriptors = 0;
  // The kernel keeps the ports of a job that is over for a minute, so each has hosts of its own.
  for (int times = 0; times < 2; ++times) {
    std::string why;
    const auto hosts = Hosts::Make(2, &why);
    if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
    CheckHolds([&](Bench& bench) { return TakeAllButOne(bench, *hosts, descriptors); });
  }
}

TEST_CASE("F28: an agent without a port for its workers' store ends, and says what to do") {
  std::string why;
  const auto hosts = Hosts::Make(2, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  CheckHolds([&](Bench& bench) { return TakeAll(bench, *hosts); });
}

}  // namespace
}  // namespace ddprun::testing
