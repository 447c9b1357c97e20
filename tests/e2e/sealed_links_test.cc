// What the tcp backend says between hosts: in the clear without a token, and sealed with one.
#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <net/ethernet.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "tests/e2e/job.h"
#include "tests/support/certificates.h"
#include "tests/support/contains.h"
#include "tests/support/netns.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;

constexpr char kToken[] = "6b1f0c8e5a7d4b2390e1f4a6c8d7b5e3";

// What passes the network card of a host, as who sits in the middle would see it. On a busy machine
// the kernel drops some of it, which is in no test's favour: the pattern is in every packet.
class Sniffer {
 public:
  explicit Sniffer(const std::string& netns) {
    std::thread([&] {  // which alone moves to the other namespace
      const UniqueFd there(open(("/run/netns/" + netns).c_str(), O_RDONLY | O_CLOEXEC));
      if (!there.is_open() || setns(there.get(), CLONE_NEWNET) != 0) return;
      socket_.Reset(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL)));
    })
        .join();
    REQUIRE(socket_.is_open());
    const int room = 64 << 20;
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    thread_ = std::thread([this] { Run(); });
  }
  ~Sniffer() { Stop(); }

  // All that was seen.
  const std::string& Stop() {
    const uint64_t one = 1;
    if (thread_.joinable() && write(end_.get(), &one, sizeof one) > 0) thread_.join();
    return seen_;
  }

 private:
  void Run() {
    std::array<char, 70'000> packet;
    for (;;) {
      pollfd polled[] = {{socket_.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}};
      if (poll(polled, 2, -1) < 0) continue;
      if (polled[0].revents != 0) {
        const ssize_t size = recv(socket_.get(), packet.data(), packet.size(), MSG_DONTWAIT);
        if (size > 0) seen_.append(packet.data(), static_cast<size_t>(size));
      } else if (polled[1].revents != 0) {
        return;
      }
    }
  }

  UniqueFd socket_;
  const UniqueFd end_{eventfd(0, EFD_CLOEXEC)};
  std::string seen_;  // of thread_ until it is joined
  std::thread thread_;
};

bool IsPatternIn(const std::string& seen) { return seen.find(std::string(64, 'Z')) != seen.npos; }

// Two hosts with a worker each.
struct Nodes {
  static std::unique_ptr<Nodes> Make(std::string* why) {
    auto hosts = Hosts::Make(2, why);
    if (hosts == nullptr) return nullptr;
    auto nodes = std::make_unique<Nodes>();
    nodes->hosts = std::move(hosts);
    nodes->token_file = WriteFile(nodes->job.File("token"), std::string(kToken) + "\n", 0600);
    return nodes;
  }
  Node Run(int host, const std::vector<std::string>& trust, int without = -1,
           const std::string& until = "") {
    std::vector<std::string> argv = {Runfile("ddprun"), "--nnodes=2", "--nproc-per-node=1",
                                     "--rdzv-id=" + job.id(),
                                     "--rdzv-endpoint=" + hosts->Address(1) + ":29400"};
    argv.insert(argv.end(), trust.begin(), trust.end());
    argv.insert(argv.end(), {Runfile("tests/e2e/summing_worker"), std::to_string(without), until});
    return job.RunProgram(argv,
                          {.env = {{"DDPRUN_LOG_LEVEL", "trace"}}, .netns = hosts->Name(host)});
  }
  std::vector<std::string> Token() const { return {"--token-file=" + token_file}; }

  std::unique_ptr<Hosts> hosts;
  Job job;
  std::string token_file;
};

void CheckEndsWell(const Node& a, const Node& b) {
  REQUIRE_MESSAGE(a->Wait() == 0, a->Describe(), b->Describe());
  REQUIRE_MESSAGE(b->Wait() == 0, a->Describe(), b->Describe());
  CHECK(a->out() + b->out() == Contains("summed"));
}

TEST_CASE("sealed links: who sits between the nodes sees what is summed without a token") {
  std::string why;
  const auto nodes = Nodes::Make(&why);
  if (nodes == nullptr) return SkipTest("no network namespaces here: " + why);
  Sniffer sniffer(nodes->hosts->Name(2));
  const Node a = nodes->Run(1, {}), b = nodes->Run(2, {});
  CheckEndsWell(a, b);
  CHECK(IsPatternIn(sniffer.Stop()));
}

TEST_CASE("sealed links: with a token nothing of it is seen, and the key is nowhere to be read") {
  std::string why;
  const auto nodes = Nodes::Make(&why);
  if (nodes == nullptr) return SkipTest("no network namespaces here: " + why);
  Sniffer sniffer(nodes->hosts->Name(2));
  const std::string go = nodes->job.File("go");
  const Node a = nodes->Run(1, nodes->Token(), -1, go), b = nodes->Run(2, nodes->Token(), -1, go);
  REQUIRE_MESSAGE(a->WaitForOut("summed"), a->Describe(), b->Describe());
  REQUIRE_MESSAGE(b->WaitForOut("summed"), a->Describe(), b->Describe());
  std::vector<std::string> keys;
  for (const int rank : {0, 1}) {
    const std::string folder = "/proc/" + std::to_string(nodes->job.PidOfRank(rank)) + "/";
    CHECK(ReadFile(folder + "environ") == Contains("DDPRUN_ROUND_KEY_FD=199"));
    keys.push_back(ReadFile(folder + "fd/199"));
    CHECK(keys.back().size() == 32);
  }
  CHECK(keys[0] == keys[1]);
  for (const int pid : nodes->job.Processes()) {
    const std::string folder = "/proc/" + std::to_string(pid) + "/";
    CHECK(ReadFile(folder + "environ") + ReadFile(folder + "cmdline") != Contains(keys[0]));
  }
  nodes->job.Touch("go");
  CheckEndsWell(a, b);
  const std::string& seen = sniffer.Stop();
  CHECK(seen.size() > (size_t{1} << 20));  // of four sums, there and back
  CHECK_FALSE(IsPatternIn(seen));
  CHECK(seen != Contains(keys[0]));
  CHECK(a->err() + b->err() + a->out() + b->out() != Contains(keys[0]));
}

TEST_CASE("sealed links: own certificates seal them, too") {
  std::string why;
  const auto nodes = Nodes::Make(&why);
  if (nodes == nullptr) return SkipTest("no network namespaces here: " + why);
  const Certificate authority = MakeAuthority();
  const auto files = [&](const std::string& name) -> std::vector<std::string> {
    const Certificate own = MakeServerCertificate(authority, "DNS:" + name, -7200, 3600);
    return {"--tls-cert=" + WriteFile(nodes->job.File(name + ".cert"), own.certificate),
            "--tls-key=" + WriteFile(nodes->job.File(name + ".key"), own.key, 0600),
            "--tls-ca=" + WriteFile(nodes->job.File(name + ".ca"), authority.certificate)};
  };
  Sniffer sniffer(nodes->hosts->Name(2));
  const Node a = nodes->Run(1, files("a")), b = nodes->Run(2, files("b"));
  CheckEndsWell(a, b);
  CHECK_FALSE(IsPatternIn(sniffer.Stop()));
}

TEST_CASE("sealed links: a rank that has lost the key is named by all") {
  std::string why;
  const auto nodes = Nodes::Make(&why);
  if (nodes == nullptr) return SkipTest("no network namespaces here: " + why);
  const Node a = nodes->Run(1, nodes->Token(), 1), b = nodes->Run(2, nodes->Token(), 1);
  CHECK(a->Wait() != 0);
  CHECK(b->Wait() != 0);
  CHECK(a->out() + b->out() == Contains("rank 1 has not the key of this round"));
}

}  // namespace
}  // namespace ddprun::testing
