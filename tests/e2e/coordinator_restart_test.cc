// A coordinator that runs apart from every node: it is killed, stopped, cut off and started again,
// and the workers do not notice.
#include <signal.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/support/contains.h"
#include "tests/support/netns.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;

// Every time the agents look for a lost coordinator and find it they say so at this level.
const std::map<std::string, std::string> kTalkative = {{"DDPRUN_LOG_LEVEL", "info"}};
constexpr char kBack[] = "coordinator back";

// A coordinator and two agents of two workers each, ranks 0 and 1 on one and 2 and 3 on the other.
class Apart {
 public:
  // `names_run`: the coordinator is given --rdzv-id and so keeps a file; otherwise it learns all
  // from those that join.
  explicit Apart(bool names_run) : names_run_(names_run) { StartCoordinator(); }

  void StartCoordinator(const std::string& run = "apart") {
    std::vector<std::string> arguments = {"coordinator",
                                          "--bind=127.0.0.1:" + std::to_string(job_.port())};
    if (names_run_) arguments.push_back("--rdzv-id=" + run);
    coordinator_ = job_.RunRaw(arguments);
    REQUIRE_MESSAGE(coordinator_->WaitForErr("listening on"), coordinator_->Describe());
  }

  void StartNodes(const std::vector<std::string>& more, std::vector<std::string> steps,
                  const std::string& nodes = "2") {
    steps.insert(steps.begin(), "touch:" + job_.File("up{rank}.{restart}"));
    std::vector<std::string> options = job_.NodeOptions(2, nodes, more);
    options.push_back("--rdzv-id=apart");  // the last one wins
    for (int i = 0; i < 2; ++i) nodes_.push_back(job_.Run(options, steps, {.env = kTalkative}));
  }

  // Both nodes, with all of their workers running.
  void StartNodesAndAwait(const std::vector<std::string>& more, std::vector<std::string> steps,
                          const std::string& nodes = "2") {
    StartNodes(more, std::move(steps), nodes);
    AwaitWorkers(0, 4);
  }

  void AwaitWorkers(int restart, int world_size) {
    for (int rank = 0; rank < world_size; ++rank) {
      const std::string up = "up" + std::to_string(rank) + "." + std::to_string(restart);
      REQUIRE_MESSAGE(job_.WaitForFile(up), up, Describe());
    }
  }

  void KillCoordinator() {
    coordinator_->Signal(SIGKILL);
    REQUIRE(coordinator_->Wait() == 128 + SIGKILL);
  }

  // One of them alone, which then waits for the other one.
  void StartWaitingNode() {
    nodes_.push_back(job_.Run(job_.NodeOptions(1, "2", {"--rdzv-id=apart"}), {}));
    AwaitMissingNodes(*nodes_.back());
  }

  // Waits until both agents have found a coordinator for the `times`th time since they lost the
  // first.
  void AwaitBack(size_t times) {
    for (const Node& node : nodes_) {
      REQUIRE_MESSAGE(Eventually([&] { return CountOf(node->err(), kBack) >= times; }), "back ",
                      times, Describe());
    }
  }

  std::vector<int> Pids() const {
    std::vector<int> pids;
    for (int rank = 0; rank < 4; ++rank) pids.push_back(job_.PidOfRank(rank));
    return pids;
  }

  void CheckAllEndWith(int exit_code) {
    for (const Node& node : nodes_) REQUIRE_MESSAGE(node->Wait() == exit_code, Describe());
    REQUIRE_MESSAGE(coordinator_->Wait() == exit_code, Describe());
  }

  std::string Describe() const {
    std::string text = coordinator_->Describe();
    for (const Node& node : nodes_) text += node->Describe();
    return text;
  }

  Job& job() { return job_; }
  Subprocess& coordinator() { return *coordinator_; }
  Subprocess& node(size_t index) { return *nodes_[index]; }

 private:
  const bool names_run_;
  Job job_;
  Node coordinator_;
  std::vector<Node> nodes_;
};

TEST_CASE("coordinator: one that stays away ends the job with 123 after orphan_timeout") {
  Apart apart(/*names_run=*/true);
  apart.StartNodesAndAwait({"--max-restarts=1", "--rdzv-conf=orphan_timeout=5"}, {"wait"});
  apart.KillCoordinator();
  for (const size_t i : {size_t{0}, size_t{1}}) {
    REQUIRE_MESSAGE(apart.node(i).Wait() == 123, apart.Describe());
    CHECK_MESSAGE(CountOf(apart.node(i).err(), "no word from it for 5 s") > 0, apart.Describe());
  }
  CHECK(apart.job().IsGone());
}

TEST_CASE("coordinator: killed and started again 25 times, it disturbs no worker") {
  bool has_file = false;
  SUBCASE("with its file") { has_file = true; }
  SUBCASE("without a file") {}
  Apart apart(/*names_run=*/has_file);
  const std::string go = apart.job().File("go");
  apart.StartNodesAndAwait({}, {"until:" + go});
  const std::vector<int> pids = apart.Pids();
  for (size_t i = 1; i <= 25; ++i) {
    apart.KillCoordinator();
    apart.StartCoordinator();
    apart.AwaitBack(i);
    REQUIRE_MESSAGE(apart.Pids() == pids, apart.Describe());
  }
  apart.job().Touch("go");
  apart.CheckAllEndWith(0);
  CHECK_FALSE(apart.job().HasFile("up0.1"));
}

TEST_CASE("coordinator: the agents say who serves another run in its place, and go on") {
  Apart apart(/*names_run=*/true);
  apart.StartNodesAndAwait({}, {"until:" + apart.job().File("go")});
  const std::vector<int> pids = apart.Pids();
  apart.KillCoordinator();
  for (size_t i = 0; i < 2; ++i) {
    REQUIRE_MESSAGE(apart.node(i).WaitForErr("is lost: "), apart.Describe());
  }
  apart.StartCoordinator("someone-else");
  for (size_t i = 0; i < 2; ++i) {
    const auto is_told = [&] {
      return CountOf(apart.node(i).err(), "go on without it up to") == 2;
    };
    REQUIRE_MESSAGE(Eventually(is_told), apart.Describe());
    const std::string who =
        "serves the run \"someone-else\", not \"apart\": use another port, or, for the same job, "
        "the same --rdzv-id; this node's workers go on without it up to ";
    CHECK_MESSAGE(CountOf(apart.node(i).err(), who) == 1, apart.Describe());
  }
  CHECK_MESSAGE(apart.Pids() == pids, apart.Describe());
  apart.KillCoordinator();
  apart.StartCoordinator();
  apart.job().Touch("go");
  apart.CheckAllEndWith(0);
}

TEST_CASE("coordinator: a stranger that takes its port while it is down ends no node's wait") {
  Apart apart(/*names_run=*/true);
  apart.StartWaitingNode();
  apart.KillCoordinator();
  {
    const rendezvous::ForeignServer stranger("SSH-2.0-stranger\r\n", true,
                                             static_cast<uint16_t>(apart.job().port()));
    const std::string who = "which --rdzv-endpoint names, is in use by another program";
    REQUIRE_MESSAGE(apart.node(0).WaitForErr(who), apart.Describe());
  }
  apart.StartCoordinator();
  auto other = apart.job().Run(apart.job().NodeOptions(1, "2", {"--rdzv-id=apart"}), {});
  REQUIRE_MESSAGE(other->Wait() == 0, other->Describe());
  apart.CheckAllEndWith(0);
}

TEST_CASE("coordinator: a worker that fails while it is down restarts all once it is back") {
  Apart apart(/*names_run=*/true);
  apart.StartNodesAndAwait({"--max-restarts=1"}, {"wait#0", "until:" + apart.job().File("go")});
  apart.KillCoordinator();
  REQUIRE(kill(apart.job().PidOfRank(3), SIGKILL) == 0);
  REQUIRE_MESSAGE(Eventually([&] { return !apart.job().HasWorker(2); }), apart.Describe());
  CHECK_MESSAGE(apart.job().HasWorker(0), "nobody can have told this node yet");
  apart.StartCoordinator();
  apart.AwaitWorkers(1, 4);
  apart.job().Touch("go");
  apart.CheckAllEndWith(0);
}

TEST_CASE("coordinator: a job that succeeds while it is down ends with 0 once it is back") {
  Apart apart(/*names_run=*/false);
  apart.StartNodesAndAwait({}, {"until:" + apart.job().File("go")});
  apart.KillCoordinator();
  apart.job().Touch("go");
  REQUIRE_MESSAGE(
      Eventually([&] { return !apart.job().HasWorker(0) && !apart.job().HasWorker(3); }),
      apart.Describe());
  apart.StartCoordinator();
  apart.CheckAllEndWith(0);
}

TEST_CASE("coordinator: a node lost while it is down is lost once it is back") {
  Apart apart(/*names_run=*/true);
  apart.StartNodesAndAwait({"--rdzv-conf=last_call_timeout=60"},
                           {"until:" + apart.job().File("go")}, "1:2");
  apart.KillCoordinator();
  apart.node(0).Signal(SIGKILL);
  REQUIRE(apart.node(0).Wait() == 128 + SIGKILL);
  apart.StartCoordinator();
  const auto has_two_new_workers = [&] {
    return CountOf(apart.node(1).err(), "going on with 1 node") > 0;
  };
  REQUIRE_MESSAGE(Eventually(has_two_new_workers), apart.Describe());
  apart.job().Touch("go");
  REQUIRE_MESSAGE(apart.node(1).Wait() == 0, apart.Describe());
  REQUIRE_MESSAGE(apart.coordinator().Wait() == 0, apart.Describe());
}

TEST_CASE("coordinator: stopped for longer than the time to eviction, it evicts nobody") {
  Apart apart(/*names_run=*/true);
  apart.StartNodesAndAwait({}, {"until:" + apart.job().File("go")});
  const std::vector<int> pids = apart.Pids();
  apart.coordinator().Signal(SIGSTOP);
  // Contact is lost after 10 s, the evict time, at the earliest, and told as that after 5 s more.
  for (size_t i = 0; i < 2; ++i) {
    REQUIRE_MESSAGE(apart.node(i).WaitForErr("go on without it up to"), apart.Describe());
  }
  apart.coordinator().Signal(SIGCONT);
  apart.AwaitBack(1);
  CHECK_MESSAGE(apart.Pids() == pids, apart.Describe());
  apart.job().Touch("go");
  apart.CheckAllEndWith(0);
}

TEST_CASE("coordinator: cut off for 30 s and healed, it finds every worker as it was") {
  std::string why;
  const auto hosts = Hosts::Make(3, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  Job job;
  const Node coordinator = job.RunRaw({"coordinator", "--bind=:29400"}, {.netns = hosts->Name(3)});
  REQUIRE_MESSAGE(coordinator->WaitForErr("listening on"), coordinator->Describe());
  const std::vector<std::string> options = {"--nnodes=2", "--nproc-per-node=1",
                                            "--rdzv-id=" + job.id(), "--rdzv-backend=c10d",
                                            "--rdzv-endpoint=" + hosts->Address(3) + ":29400"};
  const std::vector<std::string> steps = {"touch:" + job.File("up{rank}"),
                                          "until:" + job.File("go")};
  std::vector<Node> nodes;
  for (int i = 1; i <= 2; ++i) {
    nodes.push_back(job.Run(options, steps, {.env = kTalkative, .netns = hosts->Name(i)}));
  }
  for (const char* up : {"up0", "up1"}) {
    REQUIRE_MESSAGE(job.WaitForFile(up), nodes[0]->Describe(), nodes[1]->Describe());
  }
  const int pids[] = {job.PidOfRank(0), job.PidOfRank(1)};

  hosts->SetLink(3, false);
  const auto is_disturbed = [&] {
    return job.PidOfRank(0) != pids[0] || job.PidOfRank(1) != pids[1];
  };
  CHECK_FALSE_MESSAGE(Eventually(is_disturbed, std::chrono::seconds(30)), nodes[0]->Describe(),
                      nodes[1]->Describe());
  hosts->SetLink(3, true);
  for (const Node& node : nodes) {
    REQUIRE_MESSAGE(node->WaitForErr(kBack), node->Describe(), coordinator->Describe());
  }
  CHECK_FALSE_MESSAGE(is_disturbed(), nodes[0]->Describe(), nodes[1]->Describe());
  job.Touch("go");
  for (const Node& node : nodes) REQUIRE_MESSAGE(node->Wait() == 0, node->Describe());
  REQUIRE_MESSAGE(coordinator->Wait() == 0, coordinator->Describe());
}

// The port keeps a table of connections over which nobody has joined yet, by the other end's
// address, whose interface gRPC and the kernel spell differently: one that it does not find there
// again is shut down after 5 s.
TEST_CASE("coordinator: a stream over link-local addresses outlives the time for joining") {
  std::string why;
  const auto hosts = Hosts::Make(2, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  hosts->AddAddress(1, "fe80::77:1");
  hosts->AddAddress(2, "fe80::77:2");
  Job job;
  const std::vector<std::string> options = {"--nnodes=2", "--nproc-per-node=1",
                                            "--rdzv-id=" + job.id(), "--rdzv-backend=c10d",
                                            "--rdzv-endpoint=[fe80::77:1%eth0]:29400"};
  const std::vector<std::string> steps = {"touch:" + job.File("up{rank}"),
                                          "until:" + job.File("go")};
  std::vector<Node> nodes;
  for (int i = 1; i <= 2; ++i) {
    nodes.push_back(job.Run(options, steps, {.env = kTalkative, .netns = hosts->Name(i)}));
  }
  for (const char* up : {"up0", "up1"}) {
    REQUIRE_MESSAGE(job.WaitForFile(up), nodes[0]->Describe(), nodes[1]->Describe());
  }
  const auto is_lost = [&] { return CountOf(nodes[1]->err(), "coordinator lost") > 0; };
  CHECK_FALSE_MESSAGE(Eventually(is_lost, std::chrono::seconds(8)), nodes[1]->Describe());
  job.Touch("go");
  for (const Node& node : nodes) REQUIRE_MESSAGE(node->Wait() == 0, node->Describe());
}

}  // namespace
}  // namespace ddprun::testing
