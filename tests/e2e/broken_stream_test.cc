// The stream between an agent and the coordinator breaks while the job runs: nobody is stopped for
// it, and what happens meanwhile is heard afterwards.
#include <signal.h>

#include <fstream>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

using rendezvous::Proxy;

// Two nodes of two workers. The host's has ranks 0 and 1; the other one, with ranks 2 and 3, talks
// to the coordinator through `proxy`.
class TwoNodes {
 public:
  TwoNodes(std::vector<std::string> steps, const std::string& max_restarts)
      : proxy_(static_cast<uint16_t>(job_.port())) {
    const std::string up = "touch:" + job_.File("up{rank}.{restart}");
    steps.insert(steps.begin(), up);
    // The time to eviction is none of this test's business, however slow the machine is.
    const std::string conf = "--rdzv-conf=keep_alive_interval=60,keep_alive_max_attempt=3";
    const std::string restarts = "--max-restarts=" + max_restarts;
    host_ = job_.Run(job_.NodeOptions(2, "2", {conf, restarts}), steps);
    AwaitMissingNodes(*host_);
    // The last one wins.
    const std::string through = "--rdzv-endpoint=127.0.0.1:" + std::to_string(proxy_.port());
    other_ = job_.Run(job_.NodeOptions(2, "2", {conf + ",is_host=0", restarts, through}), steps);
    AwaitWorkers(0);
  }

  void AwaitWorkers(int restart) {
    for (int rank = 0; rank < 4; ++rank) {
      const std::string up = "up" + std::to_string(rank) + "." + std::to_string(restart);
      REQUIRE_MESSAGE(job_.WaitForFile(up), up, host_->Describe(), other_->Describe());
    }
  }
  bool HasWorker(int rank) const { return job_.HasWorker(rank); }
  int Pid(int rank) const { return job_.PidOfRank(rank); }
  // Waits until the node of `rank` and its neighbour has noticed a failure and stopped both.
  void AwaitNodeStopped(int rank) {
    REQUIRE_MESSAGE(Eventually([&] { return !HasWorker(rank) && !HasWorker(rank + 1); }),
                    host_->Describe(), other_->Describe());
  }
  void CheckBothEndWith(int exit_code) {
    REQUIRE_MESSAGE(host_->Wait() == exit_code, host_->Describe(), other_->Describe());
    REQUIRE_MESSAGE(other_->Wait() == exit_code, host_->Describe(), other_->Describe());
  }

  Job& job() { return job_; }
  Proxy& proxy() { return proxy_; }
  Subprocess& host() { return *host_; }
  Subprocess& other() { return *other_; }

 private:
  Job job_;
  Proxy proxy_;
  std::unique_ptr<Subprocess> host_;
  std::unique_ptr<Subprocess> other_;
};

// Breaks the stream and waits until the agent behind it looks for a new one.
void Break(TwoNodes& nodes) {
  nodes.proxy().Hold();
  REQUIRE_MESSAGE(Eventually([&] { return nodes.proxy().HasWaiting(); }), nodes.other().Describe());
}

// Breaks the stream, kills `rank`, and waits until its node has noticed.
void KillWhileBroken(TwoNodes& nodes, int rank, int first_rank_of_node) {
  Break(nodes);
  REQUIRE(kill(nodes.Pid(rank), SIGKILL) == 0);
  nodes.AwaitNodeStopped(first_rank_of_node);
}

void CheckNamesRank(Subprocess& node, int rank) {
  CHECK(node.err() == Contains("rank      : " + std::to_string(rank)));
}

TEST_CASE("broken stream: a break without a failure stops no worker, and the job ends well") {
  const TempDir dir;
  const std::string go = dir.File("go");
  TwoNodes nodes({"until:" + go}, "1");
  std::vector<int> pids;
  for (int rank = 0; rank < 4; ++rank) pids.push_back(nodes.Pid(rank));
  for (int i = 0; i < 3; ++i) {
    Break(nodes);  // at whatever point the agent has come to since the last time
    nodes.proxy().Release();
    REQUIRE(Eventually([&] { return !nodes.proxy().HasWaiting(); }));
  }
  for (int rank = 0; rank < 4; ++rank) CHECK(nodes.Pid(rank) == pids[static_cast<size_t>(rank)]);
  std::ofstream(go).flush();
  nodes.CheckBothEndWith(0);
  CHECK(nodes.other().err() != Contains("stopping"));
  CHECK(nodes.host().err() != Contains("restart"));
}

TEST_CASE("broken stream: success during a break is heard, and the verdict after it") {
  const TempDir dir;
  const std::string go = dir.File("go");
  TwoNodes nodes({"until:" + go}, "0");
  Break(nodes);
  std::ofstream(go).flush();
  nodes.AwaitNodeStopped(0);
  nodes.AwaitNodeStopped(2);
  nodes.proxy().Release();
  nodes.CheckBothEndWith(0);
}

TEST_CASE("broken stream: a worker that fails behind the break ends both nodes with its code") {
  TwoNodes nodes({"wait"}, "0");
  KillWhileBroken(nodes, 3, 2);
  CHECK_MESSAGE(nodes.HasWorker(0), "nobody can have told this node yet");
  nodes.proxy().Release();
  nodes.CheckBothEndWith(137);
  CheckNamesRank(nodes.host(), 3);
  CheckNamesRank(nodes.other(), 3);
}

TEST_CASE("broken stream: a worker that fails at the coordinator ends both nodes with its code") {
  TwoNodes nodes({"wait"}, "0");
  KillWhileBroken(nodes, 1, 0);
  CHECK_MESSAGE(nodes.HasWorker(2), "nobody can have told this node yet");
  nodes.proxy().Release();
  nodes.CheckBothEndWith(137);
  CheckNamesRank(nodes.host(), 1);
  CheckNamesRank(nodes.other(), 1);
}

TEST_CASE("broken stream: a failure behind the break restarts both nodes, once") {
  TwoNodes nodes({"wait#0"}, "1");
  KillWhileBroken(nodes, 3, 2);
  nodes.proxy().Release();
  nodes.AwaitWorkers(1);
  nodes.CheckBothEndWith(0);
}

TEST_CASE("broken stream: a failure at the coordinator restarts both nodes, once") {
  TwoNodes nodes({"wait#0"}, "1");
  KillWhileBroken(nodes, 0, 0);
  nodes.proxy().Release();
  nodes.AwaitWorkers(1);
  nodes.CheckBothEndWith(0);
}

}  // namespace
}  // namespace ddprun::testing
