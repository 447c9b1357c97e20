#include "launcher/status/node_memory.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

namespace ddprun::launcher {
namespace {

using std::chrono::seconds;

constexpr TimePoint kBegin{seconds(1000)};

NodeView Node(const std::string& id, const std::string& host,
              const std::string& state = "running") {
  NodeView node;
  node.id = id;
  node.host = host;
  node.state = state;
  return node;
}

JobView Job(std::vector<NodeView> nodes, std::vector<std::string> silent = {}) {
  JobView job;
  job.state = "running";
  job.round = 1;
  job.nodes = std::move(nodes);
  job.silent_nodes = std::move(silent);
  return job;
}

TEST_CASE("node memory: of two agents of one host the one that is silent has its own last word") {
  NodeMemory memory;
  JobView job = Job({Node("a", "here"), Node("b", "gpu-7"), Node("c", "gpu-7", "joining")});
  memory.Recall(kBegin, false, job);
  CHECK(job.nodes.size() == 3);
  job = Job({Node("a", "here"), Node("c", "gpu-7", "running")}, {"gpu-7"});
  memory.Recall(kBegin + seconds(3), false, job);
  REQUIRE(job.nodes.size() == 3);
  CHECK(job.nodes[1].state == "running");
  CHECK(job.nodes[1].age_s == 0);
  CHECK(job.nodes[2].id == "b");
  CHECK(job.nodes[2].age_s == 3);
  // Its age is that of its word, and not of the look before.
  job = Job({Node("a", "here")}, {"gpu-7", "gpu-7"});
  memory.Recall(kBegin + seconds(5), false, job);
  REQUIRE(job.nodes.size() == 3);
  CHECK(job.nodes[1].id == "b");
  CHECK(job.nodes[1].age_s == 5);
  CHECK(job.nodes[2].id == "c");
  CHECK(job.nodes[2].age_s == 2);
}

TEST_CASE("node memory: a node that is not there and not silent has left, and is forgotten") {
  NodeMemory memory;
  JobView job = Job({Node("a", "here"), Node("b", "gpu-7")});
  memory.Recall(kBegin, false, job);
  job = Job({Node("a", "here")});
  memory.Recall(kBegin + seconds(1), false, job);
  CHECK(job.nodes.size() == 1);
  job = Job({Node("a", "here")}, {"gpu-7"});
  memory.Recall(kBegin + seconds(2), false, job);
  CHECK(job.nodes.size() == 1);
}

TEST_CASE(
    "node memory: without the coordinator's answer all others are as they were, with its silence") {
  NodeMemory memory;
  JobView job = Job({Node("a", "here"), Node("b", "gpu-7")});
  memory.Recall(kBegin, false, job);
  CHECK_FALSE(job.coordinator_silent_s);
  for (const int at : {2, 9}) {
    job = Job({Node("a", "here")});
    memory.Recall(kBegin + seconds(at), true, job);
    CHECK(job.nodes.size() == 2);
    CHECK(job.coordinator_silent_s == at - 2);
  }
  // Nobody has looked for long: it may have answered meanwhile.
  job = Job({Node("a", "here")});
  memory.Recall(kBegin + seconds(60), true, job);
  CHECK(job.coordinator_silent_s == 0);
  job = Job({Node("a", "here")});
  job.is_ending = true;
  memory.Recall(kBegin + seconds(61), true, job);
  CHECK_FALSE(job.coordinator_silent_s);
}

// Each look compared every two of them once.
TEST_CASE("node memory: of ten thousand nodes the half that is silent keeps its words") {
  constexpr int kNodes = 10'000;
  NodeMemory memory;
  const auto node = [](int i) {
    // Eight agents a host.
    return Node("agent-of-a-long-name-" + std::to_string(i), "host-" + std::to_string(i / 8));
  };
  std::vector<NodeView> all;
  for (int i = 0; i < kNodes; ++i) all.push_back(node(i));
  JobView job = Job(std::move(all));
  memory.Recall(kBegin, false, job);
  std::vector<NodeView> half;
  std::vector<std::string> silent;
  for (int i = 0; i < kNodes; ++i) {
    if (i % 2 == 0) half.push_back(node(i));
    if (i % 2 == 1) silent.push_back("host-" + std::to_string(i / 8));
  }
  job = Job(std::move(half), std::move(silent));
  memory.Recall(kBegin + seconds(1), false, job);
  REQUIRE(job.nodes.size() == kNodes);
  int old = 0;
  for (const NodeView& one : job.nodes) old += one.age_s == 1 ? 1 : 0;
  CHECK(old == kNodes / 2);
}

}  // namespace
}  // namespace ddprun::launcher
