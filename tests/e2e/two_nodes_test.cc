// Two real agents on one host, over loopback.
#include <signal.h>
#include <sys/socket.h>

#include <doctest/doctest.h>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/socket_address.h"
#include "tests/e2e/job.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;

TEST_CASE("two nodes: they find each other and share one world") {
  Job job;
  auto a = job.Run(job.NodeOptions(2), {"print:rank {rank}", "env:WORLD_SIZE@0", "env:GROUP_RANK@3",
                                        "env:LOCAL_RANK@3"});
  AwaitMissingNodes(*a);
  auto b = job.Run(job.NodeOptions(2), {"print:rank {rank}", "env:WORLD_SIZE@0", "env:GROUP_RANK@3",
                                        "env:LOCAL_RANK@3"});
  REQUIRE_MESSAGE(a->Wait() == 0, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 0, b->Describe());
  const std::string all = a->out() + b->out();
  for (const char* line : {"rank 0\n", "rank 1\n", "rank 2\n", "rank 3\n", "WORLD_SIZE=4\n",
                           "GROUP_RANK=1\n", "LOCAL_RANK=1\n"}) {
    CHECK(all == Contains(line));
  }
  // Who was told that it waits is told that it does no longer.
  CHECK(a->err() == Contains("ddprun: 2 of 2 nodes: starting 4 ranks\n"));
  // The endpoint's own node has rank 0.
  CHECK(a->out() == Contains("rank 0\n"));
}

// Whether somebody listens there.
bool IsOpen(const char* ip, int port) {
  const auto address = rendezvous::ParseIp(ip, static_cast<uint16_t>(port));
  REQUIRE(address);
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return connect(fd.get(), address->get(), address->size) == 0;
}

TEST_CASE("two nodes: an endpoint on loopback is open there alone") {
  Job job;
  auto a = job.Run(job.NodeOptions(1), {"print:up"});
  AwaitMissingNodes(*a);
  CHECK(IsOpen("127.0.0.1", job.port()));
  CHECK_FALSE(IsOpen("127.0.0.2", job.port()));
  auto b = job.Run(job.NodeOptions(1), {"print:up"});
  CHECK_MESSAGE(a->Wait() == 0, a->Describe());
  CHECK_MESSAGE(b->Wait() == 0, b->Describe());
}

TEST_CASE("two nodes: without budget both end with the failing worker's code and name it") {
  Job job;
  const std::vector<std::string> steps = {"err:I am rank {rank}", "exit:9@3", "wait"};
  auto a = job.Run(job.NodeOptions(2), steps);
  auto b = job.Run(job.NodeOptions(2), steps);
  REQUIRE_MESSAGE(a->Wait() == 9, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 9, b->Describe());
  for (const auto* node : {a.get(), b.get()}) {
    CHECK(node->err() == Contains("rank      : 3"));
    CHECK(node->err() == Contains("I am rank 3"));
  }
  CHECK(job.IsGone());
}

TEST_CASE("two nodes: a killed worker restarts both nodes, with one restart count") {
  Job job;
  const std::vector<std::string> steps = {"print:rank {rank} restart {restart}", "die:9@1#0",
                                          "wait#0"};
  auto a = job.Run(job.NodeOptions(2, "2", {"--max-restarts=1"}), steps);
  auto b = job.Run(job.NodeOptions(2, "2", {"--max-restarts=1"}), steps);
  REQUIRE_MESSAGE(a->Wait() == 0, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 0, b->Describe());
  const std::string all = a->out() + b->out();
  for (int rank = 0; rank < 4; ++rank) {
    const std::string line = "rank " + std::to_string(rank) + " restart 1\n";
    CHECK(all == Contains(line));
  }
}

TEST_CASE("two nodes: a node that succeeded restarts with the rest when another fails") {
  Job job;
  // Rank 0's node succeeds in the first attempt, then rank 1 fails; both succeed in the second.
  const std::vector<std::string> steps = {"print:rank {rank} restart {restart}",
                                          "touch:" + job.File("first") + "@0#0", "exit:0@0#0",
                                          "until:" + job.File("fail") + "@1#0", "exit:3@1#0"};
  auto a = job.Run(job.NodeOptions(1, "2", {"--max-restarts=1"}), steps);
  auto b = job.Run(job.NodeOptions(1, "2", {"--max-restarts=1"}), steps);
  REQUIRE_MESSAGE(job.WaitForFile("first"), a->Describe(), b->Describe());
  CHECK_FALSE(a->Wait(200ms).has_value());  // lower bound: it does not end by itself
  job.Touch("fail");
  REQUIRE_MESSAGE(a->Wait() == 0, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 0, b->Describe());
  CHECK((a->out() + b->out()) == Contains("rank 0 restart 1\n"));
}

TEST_CASE("two nodes: a node that succeeded ends with the code of the other's failure") {
  Job job;
  const std::vector<std::string> steps = {"touch:" + job.File("first") + "@0", "exit:0@0",
                                          "until:" + job.File("fail"), "exit:3"};
  auto a = job.Run(job.NodeOptions(1), steps);
  auto b = job.Run(job.NodeOptions(1), steps);
  REQUIRE_MESSAGE(job.WaitForFile("first"), a->Describe(), b->Describe());
  CHECK_FALSE(a->Wait(200ms).has_value());  // lower bound: it does not end by itself
  job.Touch("fail");
  REQUIRE_MESSAGE(a->Wait() == 3, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 3, b->Describe());
}

TEST_CASE("two nodes: a rank 0 that has ended with 0 leaves the other node its store") {
  Job job;
  const std::vector<std::string> steps = {"exit:0@0", "until:" + job.File("go"), "connect"};
  const Subprocess::Options how = {.env = {{"DDPRUN_LOG_LEVEL", "info"}}};
  // The endpoint's own node has rank 0.
  auto a = job.Run(job.NodeOptions(1), steps, how);
  AwaitMissingNodes(*a);
  auto b = job.Run(job.NodeOptions(1, "2", {"--rdzv-conf=is_host=0"}), steps, how);
  REQUIRE_MESSAGE(a->WaitForErr(" worker ended run="), a->Describe(), b->Describe());
  CHECK_FALSE(a->Wait(200ms).has_value());  // lower bound: it does not end by itself
  job.Touch("go");
  REQUIRE_MESSAGE(a->Wait() == 0, a->Describe(), b->Describe());
  REQUIRE_MESSAGE(b->Wait() == 0, a->Describe(), b->Describe());
  CHECK(a->out() + b->out() == "connected\n");
}

TEST_CASE("two nodes: a node that waits says for whom and where, and ends after join_timeout") {
  Job job, other;
  // Side by side, as both only wait.
  const auto a = job.Run(job.NodeOptions(1, "2", {"--rdzv-conf=join_timeout=10"}), {"wait"});
  const auto untold =
      other.Run({"--nnodes=2", "--nproc-per-node=1",
                 "--master-port=" + std::to_string(other.port()), "--rdzv-conf=join_timeout=10"},
                {"wait"});
  REQUIRE_MESSAGE(a->Wait() == 121, a->Describe());
  CHECK(a->err() == Contains("1 of 2 nodes, waiting for 1 more"));
  CHECK(a->err() == Contains(job.endpoint()));
  REQUIRE_MESSAGE(untold->Wait() == 121, untold->Describe());
  const std::string where =
      "1 of 2 nodes, waiting for 1 more at 127.0.0.1:" + std::to_string(other.port()) +
      " (of this host alone, as no --master-addr was given)";
  CHECK(untold->err() == Contains(where));
}

TEST_CASE(
    "two nodes: a SIGKILL of one agent ends the other's round, and a new one takes its place") {
  Job job;
  const std::vector<std::string> steps = {"touch:" + job.File("up{rank}.{pid}"),
                                          "touch:" + job.File("up{rank}"), "grandchild",
                                          "until:" + job.File("go")};
  // With a restart allowed: without any the first loss would end the job.
  const std::vector<std::string> options = job.NodeOptions(1, "2", {"--max-restarts=1"});
  auto a = job.Run(options, steps);
  AwaitMissingNodes(*a);
  auto b = job.Run(options, steps);
  REQUIRE(job.WaitForFile("up0"));
  REQUIRE(job.WaitForFile("up1"));
  b->Signal(SIGKILL);
  CHECK(b->Wait() == 137);
  // The other node's round ends: it waits for the place to be taken.
  REQUIRE_MESSAGE(Eventually([&] {
                    const std::string err = a->err();
                    return err.rfind("waiting for 1 more") != err.find("waiting for 1 more");
                  }),
                  a->Describe());
  auto c = job.Run(options, steps);
  job.Touch("go");
  REQUIRE_MESSAGE(a->Wait() == 0, a->Describe());
  REQUIRE_MESSAGE(c->Wait() == 0, c->Describe());
}

TEST_CASE("two nodes: of a lost node the other one hears, though its own worker failed first") {
  Job job;
  const std::vector<std::string> steps = {"touch:" + job.File("up{rank}.{pid}"),
                                          "touch:" + job.File("up{rank}"),
                                          "until:" + job.File("go"), "env:WORLD_SIZE"};
  const auto node = [&](const std::string& nodes) {
    return job.Run(job.NodeOptions(1, nodes, {"--max-restarts=1"}), steps);
  };
  // Loses b, and upon that, as in a collective, fails the worker of a.
  const auto lose = [&](Subprocess& a, Subprocess& b) {
    REQUIRE_MESSAGE(job.WaitForFile("up0"), a.Describe(), b.Describe());
    REQUIRE_MESSAGE(job.WaitForFile("up1"), a.Describe(), b.Describe());
    const int worker = job.PidOfRank(0);
    REQUIRE(worker > 0);
    b.Signal(SIGKILL);
    CHECK(b.Wait() == 137);
    REQUIRE(kill(worker, SIGKILL) == 0);
    REQUIRE_MESSAGE(a.WaitForErr("rank 0 on node "), a.Describe());
  };
  SUBCASE("while it waits for another one") {
    auto a = node("2");
    AwaitMissingNodes(*a);
    auto b = node("2");
    lose(*a, *b);
    REQUIRE_MESSAGE(
        a->WaitForErr("1 of 2 nodes, waiting for 1 more (node " + rendezvous::HostName() +
                      " (node 1) is lost: its connection closed, and it has not come back), "),
        a->Describe());
    auto c = node("2");
    job.Touch("go");
    REQUIRE_MESSAGE(a->Wait() == 0, a->Describe());
    REQUIRE_MESSAGE(c->Wait() == 0, c->Describe());
  }
  SUBCASE("when it goes on alone") {
    auto a = node("1:2");
    REQUIRE_MESSAGE(a->WaitForErr("last call"), a->Describe());
    auto b = node("1:2");
    lose(*a, *b);
    REQUIRE_MESSAGE(a->WaitForErr("ddprun: node " + rendezvous::HostName() +
                                  " (node 1) is lost: its connection closed, and it has not come "
                                  "back; going on with 1 node and 1 rank instead of 2 and 2\n"),
                    a->Describe());
    job.Touch("go");
    REQUIRE_MESSAGE(a->Wait() == 0, a->Describe());
    CHECK(a->out() == "WORLD_SIZE=1\n");
  }
}

TEST_CASE("two nodes: a SIGKILL of the endpoint's agent ends the other's round") {
  Job job;
  const std::vector<std::string> steps = {"touch:" + job.File("up{rank}"),
                                          "until:" + job.File("go")};
  const std::string restarts = "--max-restarts=1";
  auto a = job.Run(job.NodeOptions(1, "2", {restarts}), steps);
  AwaitMissingNodes(*a);
  auto b = job.Run(job.NodeOptions(1, "2", {restarts, "--rdzv-conf=is_host=0"}), steps);
  REQUIRE(job.WaitForFile("up1"));
  REQUIRE(job.WaitForFile("up0"));
  a->Signal(SIGKILL);
  CHECK(a->Wait() == 137);
  REQUIRE_MESSAGE(b->WaitForErr("is gone"), b->Describe());
  auto c = job.Run(job.NodeOptions(1, "2", {restarts}), steps);
  job.Touch("go");
  REQUIRE_MESSAGE(b->Wait() == 0, b->Describe());
  REQUIRE_MESSAGE(c->Wait() == 0, c->Describe());
}

TEST_CASE("two nodes: an elastic job starts with its minimum after last call") {
  Job job;
  auto a =
      job.Run(job.NodeOptions(1, "1:2", {"--rdzv-conf=last_call_timeout=1"}), {"env:WORLD_SIZE"});
  REQUIRE_MESSAGE(a->Wait() == 0, a->Describe());
  CHECK(a->out() == "WORLD_SIZE=1\n");
}

TEST_CASE("two nodes: static ranks are the given ones, and the store shares the port") {
  Job job;
  const auto node = [&](int rank) {
    return std::vector<std::string>{
        "--nnodes=2", "--nproc-per-node=1", "--node-rank=" + std::to_string(rank),
        "--master-addr=127.0.0.1", "--master-port=" + std::to_string(job.port())};
  };
  auto b = job.Run(node(1), {"env:RANK", "env:MASTER_PORT"});
  auto a = job.Run(node(0), {"env:RANK", "env:MASTER_PORT"});
  REQUIRE_MESSAGE(a->Wait() == 0, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 0, b->Describe());
  CHECK(a->out() == "RANK=0\nMASTER_PORT=" + std::to_string(job.port()) + "\n");
  CHECK(b->out() == "RANK=1\nMASTER_PORT=" + std::to_string(job.port()) + "\n");
}

}  // namespace
}  // namespace ddprun::testing
