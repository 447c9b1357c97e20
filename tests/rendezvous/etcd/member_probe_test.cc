// What members that do not answer cost, and what is said where none can be connected to.
#include "rendezvous/etcd/member_probe.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "rendezvous/base/check.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/etcd/etcd_client.h"
#include "tests/support/contains.h"
#include "tests/support/descriptors.h"
#include "tests/support/etcd_cluster.h"
#include "tests/support/netns.h"
#include "tests/support/skip.h"
#include "tests/support/subprocess.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::EtcdCluster;
using testing::SkipTest;
using testing::WhyNoEtcd;

// gRPC alone would hold each of these connections for 20 s, and one that breaks for ever.
TEST_CASE("member probe: asking a member that is stopped costs no descriptor") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster cluster({.members = 1});
  EtcdClient client({.members = {{"127.0.0.1", cluster.port(0)}}, .prefix = "/ddprun"});
  REQUIRE(client.Get("k", SteadyNow() + seconds(20)).ok());
  const size_t before = testing::CountDescriptors(getpid());
  cluster.member(0).Signal(SIGSTOP);
  // The kernel takes a moment to stop it.
  REQUIRE(testing::Eventually([&] { return !client.Get("k", SteadyNow() + seconds(1)).ok(); }));
  for (int attempt = 0; attempt < 30; ++attempt) {
    // lower bound: it stands still
    CHECK_FALSE(client.Get("k", SteadyNow() + milliseconds(100)).ok());
  }
  const size_t after = testing::CountDescriptors(getpid());
  CHECK_MESSAGE(after <= before, "before: ", before, ", after: ", after);
}

TEST_CASE("member probe: where no local port is left it is said what to do") {
  std::string why;
  const auto hosts = testing::Hosts::Make(1, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  absl::StatusOr<bool> probed = absl::UnknownError("not tried");
  // A thread may be on another host than the rest of its process.
  std::thread([&] {
    const UniqueFd there(open(("/run/netns/" + hosts->Name(1)).c_str(), O_RDONLY | O_CLOEXEC));
    DDP_CHECK(setns(there.get(), CLONE_NEWNET) == 0);
    constexpr uint16_t kOnlyPort = 40000;
    std::ofstream("/proc/sys/net/ipv4/ip_local_port_range")
        << kOnlyPort << " " << kOnlyPort << std::flush;
    const UniqueFd taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = ParseIp("0.0.0.0", kOnlyPort);
    DDP_CHECK(bind(taken.get(), address->get(), address->size) == 0);
    probed = ProbeMember(*ParseIp(hosts->Address(1), 2379), SteadyNow() + seconds(20), {});
  }).join();
  CHECK(absl::IsUnavailable(probed.status()));
  CHECK(probed.status().message() == Contains("widen net.ipv4.ip_local_port_range"));
}

}  // namespace
}  // namespace ddprun::rendezvous
