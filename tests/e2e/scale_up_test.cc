// Nodes that come to a job that runs: what a restart costs, and when there is one (--scale-up).
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;

// A node of one worker, which runs `script`: $toy is the toy worker.
Node StartNode(Job& job, const std::string& nodes, std::vector<std::string> more,
               const std::string& script) {
  more.push_back("--no-python");
  std::vector<std::string> words = job.NodeOptions(1, nodes, more);
  const std::string toy = "toy=" + Runfile("tests/e2e/toy_worker") + "; ";
  for (const std::string& word : {std::string("/bin/sh"), std::string("-c"), toy + script}) {
    words.push_back(word);
  }
  return job.RunRaw(words);
}

// How often the worker of `node` has begun in a world of that size.
int CountBegun(const Subprocess& node, int world_size) {
  const std::string line = "WORLD_SIZE=" + std::to_string(world_size) + "\n";
  int count = 0;
  const std::string out = node.out();
  for (size_t at = out.find(line); at != std::string::npos; at = out.find(line, at + 1)) ++count;
  return count;
}

TEST_CASE("scale up: two nodes that come within the last call cost one restart") {
  Job job;
  const std::string script = "exec $toy env:WORLD_SIZE touch:" + job.File("up$RANK.$WORLD_SIZE") +
                             " until:" + job.File("go");
  const std::vector<std::string> more = {"--rdzv-conf=last_call_timeout=5"};
  std::vector<Node> nodes;
  nodes.push_back(StartNode(job, "1:3", more, script));
  REQUIRE_MESSAGE(job.WaitForFile("up0.1"), nodes[0]->Describe());
  nodes.push_back(StartNode(job, "1:3", more, script));
  REQUIRE_MESSAGE(
      nodes[1]->WaitForErr("waiting for more nodes before a restart: round 1 runs on 1 node "
                           "(max 3), "),
      nodes[1]->Describe());
  nodes.push_back(StartNode(job, "1:3", more, script));
  for (const char* up : {"up0.3", "up1.3", "up2.3"}) {
    REQUIRE_MESSAGE(job.WaitForFile(up), nodes[0]->Describe(), nodes[1]->Describe());
  }
  job.Touch("go");
  for (const Node& node : nodes) REQUIRE_MESSAGE(node->Wait() == 0, node->Describe());
  CHECK(nodes[0]->err() == Contains("2 nodes joined: "));
  CHECK(CountBegun(*nodes[0], 1) == 1);
  CHECK(CountBegun(*nodes[0], 2) == 0);
  CHECK(CountBegun(*nodes[0], 3) == 1);
}

TEST_CASE("scale up: with --scale-up=graceful the workers save and go on with the new node") {
  Job job;
  // It polls, saves step 7, and goes on from there with a flag that is not set.
  const std::string saved = job.File("saved");
  const std::string script = "if [ $WORLD_SIZE = 1 ]; then $toy touch:" + job.File("up") +
                             " asked && echo 7 >" + saved +
                             "; exit; fi; $toy env:WORLD_SIZE print:$(cat " + saved +
                             ") poll touch:" + job.File("again$RANK") + " until:" + job.File("go");
  const std::vector<std::string> more = {"--scale-up=graceful", "--rdzv-conf=last_call_timeout=0"};
  std::vector<Node> nodes;
  nodes.push_back(StartNode(job, "1:2", more, script));
  REQUIRE_MESSAGE(job.WaitForFile("up"), nodes[0]->Describe());
  nodes.push_back(StartNode(job, "1:2", more, script));
  for (const char* again : {"again0", "again1"}) {
    REQUIRE_MESSAGE(job.WaitForFile(again), nodes[0]->Describe(), nodes[1]->Describe());
  }
  job.Touch("go");
  for (const Node& node : nodes) {
    REQUIRE_MESSAGE(node->Wait() == 0, node->Describe());
    CHECK(node->out() == "WORLD_SIZE=2\n7\nnot asked\n");
    CHECK(node->err() != Contains("restart 1"));
  }
  CHECK(nodes[0]->err() == Contains(" joined: asked the workers of this node for a graceful stop, "
                                    "then all start again (--scale-up=graceful)"));
}

TEST_CASE("scale up: workers that do not look at the flag run on, and one line says so") {
  Job job;
  const std::string script = "exec $toy env:WORLD_SIZE touch:" + job.File("up$RANK.$WORLD_SIZE") +
                             " until:" + job.File("go");
  const std::vector<std::string> more = {"--scale-up=graceful", "--rdzv-conf=last_call_timeout=0"};
  std::vector<Node> nodes;
  nodes.push_back(StartNode(job, "1:2", more, script));
  REQUIRE_MESSAGE(job.WaitForFile("up0.1"), nodes[0]->Describe());
  nodes.push_back(StartNode(job, "1:2", more, script));
  REQUIRE_MESSAGE(
      nodes[1]->WaitForErr("waiting until the workers of 1 node have ended after their step "
                           "(--scale-up=graceful)"),
      nodes[1]->Describe());
  REQUIRE_MESSAGE(
      nodes[0]->WaitForErr("no rank has looked for the graceful stop in 10 s: a program has to "
                           "call ShouldStop() or ddprun.should_stop() after each step; the new "
                           "nodes wait for the next restart\n"),
      nodes[0]->Describe());
  // They have done the job, and have made room for nobody.
  job.Touch("go");
  for (const Node& node : nodes) REQUIRE_MESSAGE(node->Wait() == 0, node->Describe());
  CHECK(nodes[0]->out() == "WORLD_SIZE=1\n");
  CHECK(nodes[1]->out().empty());
}

TEST_CASE("scale up: with --scale-up=restart a node waits until a worker fails") {
  Job job;
  const std::string script =
      "[ $WORLD_SIZE = 2 ] || more=\"until:" + job.File("fail") +
      " exit:7\"; exec $toy env:WORLD_SIZE touch:" + job.File("up$RANK.$WORLD_SIZE") + " $more";
  const std::vector<std::string> more = {"--scale-up=restart", "--max-restarts=1",
                                         "--rdzv-conf=last_call_timeout=0"};
  std::vector<Node> nodes;
  nodes.push_back(StartNode(job, "1:2", more, script));
  REQUIRE_MESSAGE(job.WaitForFile("up0.1"), nodes[0]->Describe());
  nodes.push_back(StartNode(job, "1:2", more, script));
  REQUIRE_MESSAGE(nodes[1]->WaitForErr("waiting for the next restart (--scale-up=restart): round 1 "
                                       "runs on 1 node (max 2)\n"),
                  nodes[1]->Describe());
  CHECK(nodes[0]->out() == "WORLD_SIZE=1\n");
  job.Touch("fail");
  for (const Node& node : nodes) REQUIRE_MESSAGE(node->Wait() == 0, node->Describe());
  CHECK(nodes[0]->out() == "WORLD_SIZE=1\nWORLD_SIZE=2\n");
  CHECK(nodes[0]->err() == Contains("restart 1 of 1"));
}

TEST_CASE("scale up: a node with another --scale-up is refused") {
  Job job;
  const std::string script = "exec $toy touch:" + job.File("up") + " until:" + job.File("go");
  const Node node = StartNode(job, "1:2", {"--rdzv-conf=last_call_timeout=0"}, script);
  REQUIRE_MESSAGE(job.WaitForFile("up"), node->Describe());
  const Node other = StartNode(job, "1:2", {"--scale-up=restart"}, script);
  CHECK_MESSAGE(other->Wait() == 121, other->Describe());
  CHECK(other->err() == Contains("was started with --scale-up=restart, the job with "
                                 "--scale-up=now: all nodes need the same --scale-up"));
  job.Touch("go");
  CHECK_MESSAGE(node->Wait() == 0, node->Describe());
}

}  // namespace
}  // namespace ddprun::testing
