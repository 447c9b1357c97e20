// `ddprun status` of jobs on several nodes, asked on a node and from outside.
#include <signal.h>

#include <doctest/doctest.h>

#include "tests/e2e/asking.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

using nlohmann::json;
using Node = std::unique_ptr<Subprocess>;
using Strings = std::vector<std::string>;

TEST_CASE("status: any node shows all nodes, and from outside without what workers wrote") {
  for (const int count : {2, 3}) {
    Job job;
    const ControlFolder folders[3];
    std::vector<Node> nodes;
    for (int i = 0; i < count; ++i) {
      nodes.push_back(RunReporting(job, folders[i], job.NodeOptions(2, std::to_string(count)),
                                   {"err:a secret of {rank}", "steps:" + job.File("go")}));
    }
    const size_t ranks = static_cast<size_t>(2 * count);
    for (int i = 0; i < count; ++i) {
      const json seen =
          StatusUntil(job, folders[i], [&](const json& now) { return HaveStepped(now, ranks); });
      CHECK(seen["nodes"].size() == static_cast<size_t>(count));
      CHECK(seen["node_count"] == count);
      CHECK(seen["world_size"] == ranks);
      CHECK(seen["silent_nodes"].empty());
      CHECK(seen["is_healthy"] == true);
      CHECK(seen["program"].get<std::string>() == Contains("reporting_worker"));
      int hosting = 0;
      for (size_t rank = 0; rank < ranks; ++rank) {
        CHECK(RanksOf(seen)[rank]["rank"] == rank);
        CHECK(RanksOf(seen)[rank]["last_line"] == "a secret of " + std::to_string(rank));
      }
      for (const json& node : seen["nodes"]) hosting += node["hosts_coordinator"] == true ? 1 : 0;
      CHECK(hosting == 1);
    }
    const ControlFolder elsewhere;
    const Strings outside = {"status", "--coordinator=" + job.endpoint()};
    const Told told = Ask(job, elsewhere, outside);
    CHECK_MESSAGE(told.code == 0, told.Describe());
    CHECK(told.out ==
          Contains("running: round 1, " + std::to_string(count) + " of " + std::to_string(count) +
                   " nodes, " + std::to_string(ranks) + " ranks"));
    Strings as_json = outside;
    as_json.push_back("--json");
    const Told document = Ask(job, elsewhere, as_json);
    CHECK_MESSAGE(HaveStepped(document.json(), ranks), document.Describe());
    CHECK(document.json()["program"] == "");
    for (const Told* each : {&told, &document}) {
      CHECK(each->out != Contains("secret"));
      CHECK(each->out != Contains("reporting_worker"));
    }
    Strings wrong = outside;
    wrong.push_back("other");
    const Told other = Ask(job, elsewhere, wrong);
    CHECK_MESSAGE(other.code == 2, other.Describe());
    CHECK(other.err == Contains("the coordinator there serves the job "));
    job.Touch("go");
    for (const Node& node : nodes) CHECK_MESSAGE(node->Wait() == 0, node->Describe());
  }
}

TEST_CASE("status: every node, and who asks from outside, knows what failed on another one") {
  Job job;
  const ControlFolder folders[2];
  std::vector<Node> nodes;
  Strings options = job.NodeOptions(2, "2");
  options.push_back("--max-restarts=1");
  for (int i = 0; i < 2; ++i) {
    nodes.push_back(RunReporting(
        job, folders[i], options,
        {"step:1", "until:" + job.File("fail") + "#0", "exit:7@3#0", "steps:" + job.File("go")}));
  }
  for (const ControlFolder& folder : folders) {
    StatusUntil(job, folder, [](const json& now) { return HaveStepped(now, 4); });
  }
  job.Touch("fail");
  for (const ControlFolder& folder : folders) {
    const json seen = StatusUntil(job, folder, [](const json& now) {
      return now["restart_count"] == 1 && HaveStepped(now, 4);
    });
    REQUIRE(seen["first_fault"].is_object());
    CHECK(seen["first_fault"]["rank"] == 3);
    CHECK(seen["first_fault"]["round"] == 1);
    CHECK(seen["sentence"].get<std::string>() == Contains("1 restart (rank 3: exit code 7"));
  }
  const ControlFolder elsewhere;
  const Told told = Ask(job, elsewhere, {"status", "--json", "--coordinator=" + job.endpoint()});
  CHECK_MESSAGE(told.code == 0, told.Describe());
  CHECK(told.out == Contains("1 restart (rank 3: exit code 7"));
  job.Touch("go");
  for (const Node& node : nodes) CHECK_MESSAGE(node->Wait() == 0, node->Describe());
}

TEST_CASE("status: of agents on one machine the job is shown once, and by that of rank 0") {
  Job job;
  const ControlFolder folder;
  const Strings steps = {"steps:" + job.File("go")};
  const Node a = RunReporting(job, folder, job.NodeOptions(1), steps);
  const Node b = RunReporting(job, folder, job.NodeOptions(1), steps);
  const json seen = StatusUntil(job, folder, [](const json& now) { return HaveStepped(now, 2); });
  CHECK(seen["nodes"].size() == 2);
  const Told list = AskUntil(job, folder, {"list", "--json"},
                             [](const Told& told) { return told.json().size() == 1; });
  CHECK(list.code == 0);
  job.Touch("go");
  CHECK_MESSAGE(a->Wait() == 0, a->Describe());
  CHECK_MESSAGE(b->Wait() == 0, b->Describe());
}

TEST_CASE("status: a job that forms says so, on its node and from outside") {
  Job job;
  const ControlFolder folder;
  const Strings steps = {"until:" + job.File("go")};
  const Node a = RunReporting(job, folder, job.NodeOptions(2), steps);
  AwaitMissingNodes(*a);
  for (const Strings& command :
       {Strings{"status"}, Strings{"status", "--coordinator=" + job.endpoint()}}) {
    const Told told = AskUntil(job, folder, command, Shows("forming: 1 of 2 nodes, "));
    CHECK_MESSAGE(told.code == 0, told.Describe());
    CHECK(told.out == Contains("waiting for 1 more"));
  }
  const Told dump = Ask(job, folder, {"dump", "--dir", job.File("")});
  CHECK_MESSAGE(dump.code == 1, dump.Describe());
  CHECK(dump.err == Contains("the job has no ranks yet"));
  const Node b = RunReporting(job, folder, job.NodeOptions(2), steps);
  AskUntil(job, folder, {"status"}, Shows("running: round 1, 2 of 2 nodes, 4 ranks, "));
  job.Touch("go");
  CHECK_MESSAGE(a->Wait() == 0, a->Describe());
  CHECK_MESSAGE(b->Wait() == 0, b->Describe());
}

// The one that serves the job's rendezvous first.
std::vector<Node> TwoNodes(Job& job, const ControlFolder (&folders)[2], const Strings& more,
                           const Strings& steps) {
  std::vector<Node> nodes;
  nodes.push_back(RunReporting(job, folders[0], job.NodeOptions(2, "2", more), steps));
  AwaitMissingNodes(*nodes[0]);
  nodes.push_back(RunReporting(job, folders[1], job.NodeOptions(2, "2", more), steps));
  for (const ControlFolder& folder : folders) {
    StatusUntil(job, folder, [](const json& now) { return HaveStepped(now, 4); });
  }
  return nodes;
}

TEST_CASE("status: a node whose agent stands still is named, with 1, until it goes on") {
  Job job;
  const ControlFolder folders[2];
  const auto nodes = TwoNodes(job, folders, {}, {"steps:" + job.File("go")});
  nodes[1]->Signal(SIGSTOP);
  const json seen =
      StatusUntil(job, folders[0], [](const json& now) { return !now["silent_nodes"].empty(); });
  CHECK(seen["is_healthy"] == false);
  CHECK(ProblemsOf(seen) == Strings{"lost_node"});
  CHECK(seen["silent_nodes"].size() == 1);
  // Its last word stays, with its age.
  CHECK(RanksOf(seen).size() == 4);
  const Told told = Ask(job, folders[0], {"status"});
  CHECK_MESSAGE(told.code == 1, told.Describe());
  CHECK(told.out == Contains(" has not answered"));
  const Told outside = Ask(job, folders[0], {"status", "--coordinator=" + job.endpoint()});
  CHECK_MESSAGE(outside.code == 1, outside.Describe());
  CHECK(outside.out == Contains(" has not answered"));
  nodes[1]->Signal(SIGCONT);
  AskUntil(job, folders[0], {"status"}, [](const Told& again) { return again.code == 0; });
  job.Touch("go");
  for (const Node& node : nodes) CHECK_MESSAGE(node->Wait() == 0, node->Describe());
}

TEST_CASE("status: a dump names the ranks of a node that stands still") {
  Job job;
  const ControlFolder folders[2];
  // A dump waits longer for it than a job does by default.
  const auto nodes =
      TwoNodes(job, folders, {"--rdzv-conf=keep_alive_interval=20,keep_alive_max_attempt=3"},
               {"steps:" + job.File("go")});
  nodes[1]->Signal(SIGSTOP);
  const Told dump = Ask(job, folders[0], {"dump", "--dir", job.File("")});
  CHECK_MESSAGE(dump.code == 0, dump.Describe());
  CHECK(dump.out == Contains("ranks 2-3 are not known: its node has not answered"));
  nodes[1]->Signal(SIGCONT);
  job.Touch("go");
  for (const Node& node : nodes) CHECK_MESSAGE(node->Wait() == 0, node->Describe());
}

TEST_CASE("status: where the coordinator's node stands still the others say what they know") {
  Job job;
  const ControlFolder folders[2];
  const auto nodes = TwoNodes(job, folders, {}, {"steps:" + job.File("go")});
  nodes[0]->Signal(SIGSTOP);
  const Told told = AskUntil(job, folders[1], {"status"}, Shows("(node 0) has not answered"));
  CHECK(told.out != Contains("lost node: node "));
  CHECK_MESSAGE(told.code == 1, told.Describe());
  const json seen = Ask(job, folders[1], {"status", "--json"}).json();
  CHECK(seen["is_healthy"] == false);
  CHECK(RanksOf(seen).size() == 4);
  const Told outside = Ask(job, folders[1], {"status", "--coordinator=" + job.endpoint()});
  CHECK_MESSAGE(outside.code == 2, outside.Describe());
  CHECK(outside.err == Contains(job.endpoint()));
  nodes[0]->Signal(SIGCONT);
  AskUntil(job, folders[1], {"status"}, [](const Told& again) { return again.code == 0; });
  job.Touch("go");
  for (const Node& node : nodes) CHECK_MESSAGE(node->Wait() == 0, node->Describe());
}

TEST_CASE("status: a node whose agent was killed is lost, and the job forms anew") {
  Job job;
  const ControlFolder folders[2];
  auto nodes = TwoNodes(job, folders, {"--max-restarts=3"}, {"steps:" + job.File("go")});
  nodes[1]->Signal(SIGKILL);
  CHECK(nodes[1]->Wait() == 128 + SIGKILL);
  const Told told = AskUntil(job, folders[0], {"status"}, Shows("forming: 1 of 2 nodes, "));
  CHECK(told.out == Contains("lost node: "));
  CHECK(told.out == Contains(" is lost: "));
  CHECK_MESSAGE(told.code == 1, told.Describe());
  nodes[1] = RunReporting(job, folders[1], job.NodeOptions(2, "2", {"--max-restarts=3"}),
                          {"steps:" + job.File("go")});
  const json seen = StatusUntil(
      job, folders[1], [](const json& now) { return now["round"] == 2 && HaveStepped(now, 4); });
  CHECK_MESSAGE(seen["is_healthy"] == true, seen["problems"].dump());
  job.Touch("go");
  for (const Node& node : nodes) CHECK_MESSAGE(node->Wait() == 0, node->Describe());
}

TEST_CASE("status: where the coordinator's agent was killed the survivor names the node, with 1") {
  Job job;
  const ControlFolder folders[2];
  auto nodes = TwoNodes(job, folders, {"--max-restarts=3"}, {"steps:" + job.File("go")});
  nodes[0]->Signal(SIGKILL);
  CHECK(nodes[0]->Wait() == 128 + SIGKILL);
  const Told told = AskUntil(job, folders[1], {"status"},
                             Shows(" is lost: the coordinator's process there is gone"));
  CHECK_MESSAGE(told.code == 1, told.Describe());
  CHECK(told.out == Contains("lost node: node "));
  nodes[0] = RunReporting(job, folders[0], job.NodeOptions(2, "2", {"--max-restarts=3"}),
                          {"steps:" + job.File("go")});
  AskUntil(job, folders[1], {"status"}, [](const Told& again) { return again.code == 0; });
  job.Touch("go");
  for (const Node& node : nodes) CHECK_MESSAGE(node->Wait() == 0, node->Describe());
}

TEST_CASE("status: the node that serves the job and is told to stop is stopping, and not lost") {
  Job job;
  const ControlFolder folders[2];
  const auto nodes = TwoNodes(job, folders, {}, {"ignore:15", "steps:" + job.File("go")});
  nodes[0]->Signal(SIGTERM);
  const json seen =
      StatusUntil(job, folders[0], [](const json& now) { return now["state"] == "stopping"; });
  CHECK_MESSAGE(ProblemsOf(seen) == Strings{}, seen.dump());
  const Told told = Ask(job, folders[0], {"status"});
  CHECK_MESSAGE(told.code == 0, told.Describe());
  CHECK(told.out != Contains("coordinator at "));
  job.Touch("go");
  CHECK_MESSAGE(nodes[0]->Wait() == 128 + SIGTERM, nodes[0]->Describe());
  nodes[1]->Signal(SIGTERM);
  nodes[1]->Wait();
}

TEST_CASE("status: a coordinator apart tells of the job, and of none yet") {
  Job job;
  const ControlFolder folder;
  const auto coordinator = job.RunRaw({"coordinator", "--bind=" + job.endpoint()}, folder.Here());
  REQUIRE_MESSAGE(coordinator->WaitForErr("listening on "), coordinator->Describe());
  const Strings outside = {"status", "--coordinator=" + job.endpoint()};
  const Told none = Ask(job, folder, outside);
  CHECK_MESSAGE(none.code == 2, none.Describe());
  CHECK(none.err == Contains("the coordinator at " + job.endpoint() + " serves no job yet"));
  const Strings steps = {"steps:" + job.File("go")};
  const Node a = RunReporting(job, folder, job.NodeOptions(1), steps);
  const Node b = RunReporting(job, folder, job.NodeOptions(1), steps);
  StatusUntil(job, folder, [](const json& now) { return HaveStepped(now, 2); });
  const Told told =
      AskUntil(job, folder, outside, Shows("running: round 1, 2 of 2 nodes, 2 ranks, step "));
  CHECK_MESSAGE(told.code == 0, told.Describe());
  job.Touch("go");
  for (const Node* node : {&a, &b}) CHECK_MESSAGE((*node)->Wait() == 0, (*node)->Describe());
  CHECK_MESSAGE(coordinator->Wait() == 0, coordinator->Describe());
}

TEST_CASE("status: a node that died with the coordinator is missed when that is back, with 1") {
  Job job;
  const ControlFolder folders[2];
  const Strings serve = {"coordinator", "--bind=" + job.endpoint()};
  Node coordinator = job.RunRaw(serve);
  REQUIRE_MESSAGE(coordinator->WaitForErr("listening on "), coordinator->Describe());
  // Its return time does not end while the test runs.
  std::vector<Node> nodes =
      TwoNodes(job, folders, {"--rdzv-conf=keep_alive_interval=100,keep_alive_max_attempt=6"},
               {"steps:" + job.File("go")});
  for (const Node* dead : {&coordinator, &nodes[1]}) {
    (*dead)->Signal(SIGKILL);
    CHECK((*dead)->Wait() == 128 + SIGKILL);
  }
  coordinator = job.RunRaw(serve);
  const Strings commands[] = {{"status"}, {"status", "--coordinator=" + job.endpoint()}};
  for (const Strings& command : commands) {
    const Told told = AskUntil(job, folders[0], command, Shows("lost node: "));
    CHECK_MESSAGE(told.code == 1, told.Describe());
    CHECK(told.out == Contains("running: round 1, 2 of 2 nodes"));
    CHECK(told.out == Contains("lost node: 1 of the 2 nodes of round 1, node rank "));
  }
  nodes[0]->Signal(SIGTERM);
  CHECK_MESSAGE(nodes[0]->Wait() == 128 + SIGTERM, nodes[0]->Describe());
  CHECK_MESSAGE(coordinator->Wait() == 121, coordinator->Describe());  // nobody is left
}

TEST_CASE("status: a coordinator that is none, or not there, is told of with 2") {
  Job job;
  const ControlFolder folder;
  const Told told = Ask(job, folder, {"status", "--coordinator=" + job.endpoint()});
  CHECK_MESSAGE(told.code == 2, told.Describe());
  CHECK(told.out.empty());
  CHECK(
      told.err ==
      Contains("ask the coordinator at " + job.endpoint() +
               ": Connection refused; if the job has not ended: is this its --rdzv-endpoint, and"));
}

}  // namespace
}  // namespace ddprun::testing
