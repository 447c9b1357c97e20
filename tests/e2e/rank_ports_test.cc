// Strangers at the ports that the ranks themselves open while a group forms over tcp: real ranks
// under the real ddprun drop them, keep their memory, and train to the end.
#include <dirent.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/e2e/key_gate.h"
#include "tests/support/contains.h"
#include "tests/worker_runtime/comm/tcp/intruder.h"

namespace ddprun::testing {
namespace {

constexpr size_t kMaxGrowthKiB = 16 * 1024;

// The inodes of a process's sockets, as /proc/net/tcp names them.
std::set<std::string> SocketsOf(int pid) {
  std::set<std::string> inodes;
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd/";
  DIR* const dir = opendir(folder.c_str());
  if (dir == nullptr) return inodes;
  while (const dirent* entry = readdir(dir)) {
    char target[64] = {};
    if (readlink((folder + entry->d_name).c_str(), target, sizeof target - 1) <= 0) continue;
    const std::string link = target;  // "socket:[12345]"
    if (link.rfind("socket:[", 0) == 0) inodes.insert(link.substr(8, link.size() - 9));
  }
  closedir(dir);
  return inodes;
}

// The IPv4 ports on which a process listens.
std::vector<uint16_t> PortsOf(int pid) {
  const std::set<std::string> sockets = SocketsOf(pid);
  std::vector<uint16_t> ports;
  std::istringstream table(ReadFile("/proc/net/tcp"));
  std::string line;
  std::getline(table, line);  // the heading
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >>
        timeout >> inode;
    if (state != "0A" || sockets.count(inode) == 0) continue;
    ports.push_back(
        static_cast<uint16_t>(std::stoul(local.substr(local.find(':') + 1), nullptr, 16)));
  }
  return ports;
}

// The most memory that a process has ever had resident.
size_t PeakKiB(int pid) {
  const std::string status = ReadFile("/proc/" + std::to_string(pid) + "/status");
  const size_t at = status.find("VmHWM:");
  REQUIRE_MESSAGE(at != std::string::npos, "process ", pid, " is gone");
  return std::stoul(status.substr(at + 6));
}

// Of a rank's two ports the one where it waits for its neighbour's link, which drops a stranger at
// once. Strangers at the other, for messages, wait in the kernel for the rank's first message.
uint16_t LinkPort(const std::vector<uint16_t>& ports) {
  std::vector<Intruder> strangers;
  for (const uint16_t port : ports) {
    strangers.emplace_back(port);
    strangers.back().Say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  uint16_t found = 0;
  REQUIRE(Eventually([&] {
    for (size_t i = 0; i < ports.size(); ++i) {
      if (!strangers[i].IsKept(std::chrono::milliseconds(0))) found = ports[i];
    }
    return found != 0;
  }));
  return found;
}

std::vector<std::string> Sayings() {
  return {
      "",                                                            // silent
      "ddplink1",                                                    // begins well
      std::string(4096, '\xee'),                                     // garbage
      "ddplink1" + std::string(24, '\xff'),                          // the largest numbers
      std::string("\xff\xff\xff\xff\xff\xff\xff\x7f") + "ddplink1",  // as if a length came first
      "ddplink1" + std::string(16 << 20, 'x'),                       // far too much
      "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
  };
}

TEST_CASE("rank ports: strangers that come while the group forms are dropped, the job goes on") {
  Job job;
  const std::string digits = job.File("digits"), summary = job.File("summary.json");
  Subprocess draw(
      {Runfile("tools/make_digits/make_digits"), digits, "--train", "600", "--test", "100"});
  REQUIRE_MESSAGE(draw.Wait() == 0, draw.Describe());

  // Rank 0 waits for rank 1, and rank 1 for rank 2; who connects asks the store for the port. So
  // the ports of ranks 0 and 1 stay open until the gates do, and rank 1 is itself held.
  KeyGate first(static_cast<uint16_t>(job.port()), "/port/0");
  KeyGate second(static_cast<uint16_t>(job.port()), "/port/1");
  auto ddprun = job.RunRaw(
      {"--nnodes=1", "--node-rank=0", "--nproc-per-node=3", "--master-addr=127.0.0.1",
       "--master-port=" + std::to_string(job.port()), "/bin/sh", "-c",
       "case $RANK in 1) MASTER_PORT=$FIRST;; 2) MASTER_PORT=$SECOND;; esac; exec \"$@\"", "sh",
       Runfile("examples/train/train"), "--backend", "tcp", "--data", digits, "--epochs", "1",
       "--summary_file", summary},
      {.env = {{"FIRST", std::to_string(first.port())},
               {"SECOND", std::to_string(second.port())}}});
  REQUIRE_MESSAGE(Eventually([&] { return first.HoldsOne() && second.HoldsOne(); }),
                  ddprun->Describe());

  std::vector<Intruder> intruders, waiting;
  size_t before_kib[2];
  for (const int rank : {0, 1}) {
    const int pid = job.PidOfRank(rank);
    std::vector<uint16_t> ports;
    REQUIRE_MESSAGE(Eventually([&] { return (ports = PortsOf(pid)).size() == 2; }), "rank ", rank,
                    " listens on ", ports.size(), " ports");
    before_kib[rank] = PeakKiB(pid);
    const uint16_t link_port = LinkPort(ports);
    for (const std::string& saying : Sayings()) {
      for (const uint16_t port : ports) {
        std::vector<Intruder>& who = port == link_port ? intruders : waiting;
        who.emplace_back(port);
        if (port == link_port || saying.size() < 5000) who.back().Say(saying);
      }
    }
  }
  for (size_t i = 0; i < intruders.size(); ++i) {
    CAPTURE(i);
    CHECK(intruders[i].IsDropped());  // while the ranks wait: within which time is acceptor_test's
  }
  for (const int rank : {0, 1}) {
    CHECK(PeakKiB(job.PidOfRank(rank)) < before_kib[rank] + kMaxGrowthKiB);
    CHECK(PortsOf(job.PidOfRank(rank)).size() == 2);  // it still waits for its peer
  }

  first.Open();
  second.Open();
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ReadFile(summary) == Contains("\"backend\": \"tcp\""));
  std::istringstream lines(ddprun->err());
  for (std::string line; std::getline(lines, line);) {
    // On a machine that does other work a rank may be slow for true.
    if (line == Contains(" is slow: ")) continue;
    for (const char* rank : {"rank 0", "rank 1", "rank 2"}) CHECK(line != Contains(rank));
  }
  CHECK(ddprun->err() != Contains("FAILED"));
}

}  // namespace
}  // namespace ddprun::testing
