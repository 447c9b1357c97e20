// `ddprun stop`: a job is ended from any of its nodes.
#include <signal.h>

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/e2e/asking.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

using nlohmann::json;
using Node = std::unique_ptr<Subprocess>;
using Strings = std::vector<std::string>;

constexpr int kStopped = 143;
constexpr char kElsewhere[] =
    " the order, and nodes elsewhere may run on: give the same command there\n";
const std::string kAlone = std::string("; 1 agent of the job on this machine has") + kElsewhere;
constexpr char kReason[] = "stopped by ddprun stop on node ";

Node RunToy(Job& job, const ControlFolder& folder, Strings options, const Strings& steps) {
  return job.Run(std::move(options), steps, folder.Here());
}

void AwaitRunning(Job& job, const ControlFolder& folder, size_t ranks) {
  StatusUntil(job, folder, [&](const json& now) {
    return now["state"] == "running" && RanksOf(now).size() == ranks;
  });
}

TEST_CASE("stop: the workers of a job get SIGTERM and their grace, and it ends with 143") {
  Job job;
  const ControlFolder folder;
  // Block first: a stop may come before they wait.
  const Node ddprun = RunToy(job, folder, {"--nproc-per-node=2", "--rdzv-id=digits"},
                             {"block:15", "touch:" + job.File("up{rank}"), "await:15",
                              "until:" + job.File("saved"), "touch:" + job.File("bye{rank}")});
  for (const char* up : {"up0", "up1"}) REQUIRE(job.WaitForFile(up));
  folder.Socket();
  const Told told = Ask(job, folder, {"stop"});
  CHECK_MESSAGE(told.code == 0, told.Describe());
  CHECK(told.out == "stopping job digits\n");
  REQUIRE_MESSAGE(ddprun->WaitForErr(kReason), ddprun->Describe());
  CHECK(job.HasWorker(0));
  job.Touch("saved");
  CHECK_MESSAGE(ddprun->Wait() == kStopped, ddprun->Describe());
  for (const char* bye : {"bye0", "bye1"}) CHECK(job.HasFile(bye));
  CHECK(ddprun->err() != Contains("error"));
}

TEST_CASE("stop: workers that do not end are killed after --shutdown_timeout") {
  Job job;
  const ControlFolder folder;
  const Node ddprun = RunToy(job, folder, {"--nproc-per-node=1", "--shutdown-timeout=1"},
                             {"ignore:15", "touch:" + job.File("up"), "wait"});
  REQUIRE(job.WaitForFile("up"));
  folder.Socket();
  CHECK(Ask(job, folder, {"stop"}).code == 0);
  CHECK_MESSAGE(ddprun->Wait() == kStopped, ddprun->Describe());
}

TEST_CASE("stop: from either node it ends both, with 143 and the reason") {
  for (const size_t asked : {size_t{0}, size_t{1}}) {
    Job job;
    const ControlFolder folders[2];
    std::vector<Node> nodes;
    for (const ControlFolder& folder : folders) {
      nodes.push_back(RunToy(job, folder, job.NodeOptions(2, "2", {"--max-restarts=3"}), {"wait"}));
    }
    for (const ControlFolder& folder : folders) AwaitRunning(job, folder, 4);
    const Told told = Ask(job, folders[asked], {"stop"});
    CHECK_MESSAGE(told.code == 0, told.Describe());
    for (const Node& node : nodes) {
      CHECK_MESSAGE(node->Wait() == kStopped, node->Describe());
      CHECK(node->err() == Contains(kReason));
    }
  }
}

TEST_CASE("stop: --graceful asks all workers by the flag that they poll, and the job ends with 0") {
  Job job;
  const ControlFolder folders[2];
  std::vector<Node> nodes;
  for (const ControlFolder& folder : folders) {
    nodes.push_back(RunToy(job, folder, job.NodeOptions(2),
                           {"touch:" + job.File("up{rank}"), "asked", "print:saved"}));
  }
  for (const char* up : {"up0", "up1", "up2", "up3"}) REQUIRE(job.WaitForFile(up));
  for (const ControlFolder& folder : folders) folder.Socket();
  const Told told = Ask(job, folders[1], {"stop", "--graceful"});
  CHECK_MESSAGE(told.code == 0, told.Describe());
  CHECK(told.out == Contains(" for a graceful stop, after its step\n"));
  for (const Node& node : nodes) {
    CHECK_MESSAGE(node->Wait() == 0, node->Describe());
    CHECK(node->out() == "saved\nsaved\n");
    CHECK(node->err() != Contains("no rank has looked"));
  }
}

TEST_CASE("stop: after --graceful a stop still ends a job whose workers do not poll") {
  Job job;
  const ControlFolder folder;
  const Node ddprun =
      RunToy(job, folder, {"--nproc-per-node=1"}, {"touch:" + job.File("up"), "wait"});
  REQUIRE(job.WaitForFile("up"));
  folder.Socket();
  const Told old = Ask(job, folder, {"stop", "--after-step"});
  CHECK_MESSAGE(old.code == 0, old.Describe());
  CHECK(old.err == Contains("ddprun: warning: --after-step is an old name: "));
  REQUIRE_MESSAGE(
      ddprun->WaitForErr("ddprun: no rank has looked for the graceful stop in 10 s: a "
                         "program has to call ShouldStop() or ddprun.should_stop() after each "
                         "step; `ddprun stop` ends one that does not\n"),
      ddprun->Describe());
  CHECK(job.HasWorker(0));
  CHECK(Ask(job, folder, {"stop"}).code == 0);
  CHECK_MESSAGE(ddprun->Wait() == kStopped, ddprun->Describe());
}

TEST_CASE("stop: --now kills the workers on all nodes, also those that are being stopped") {
  for (const bool is_stopped_first : {false, true}) {
    Job job;
    const ControlFolder folders[2];
    std::vector<Node> nodes;
    for (const ControlFolder& folder : folders) {
      nodes.push_back(RunToy(job, folder, job.NodeOptions(1, "2", {"--shutdown-timeout=6000"}),
                             {"ignore:15", "touch:" + job.File("up{rank}"), "wait"}));
    }
    for (const char* up : {"up0", "up1"}) REQUIRE(job.WaitForFile(up));
    for (const ControlFolder& folder : folders) folder.Socket();
    if (is_stopped_first) {
      CHECK(Ask(job, folders[1], {"stop"}).code == 0);
      for (const Node& node : nodes) REQUIRE(node->WaitForErr("SIGKILL comes in 6000 s"));
    }
    for (const ControlFolder& folder : folders) {
      const Told told = Ask(job, folder, {"stop", "--now"});
      CHECK_MESSAGE(told.code == (is_stopped_first ? 1 : 0), told.Describe());
      CHECK((told.out == Contains("killing job ")) != is_stopped_first);
      CHECK((told.err == Contains("only this node's ranks are killed")) == is_stopped_first);
      if (!is_stopped_first) break;  // all nodes hear the first one
    }
    for (const Node& node : nodes) {
      CHECK_MESSAGE(node->Wait() == kStopped, node->Describe());
      CHECK(node->err() == Contains(": killing rank "));
    }
  }
}

TEST_CASE("stop: of a job that ends by itself it says why, and no worker is asked to save") {
  Job job;
  const ControlFolder folders[2];
  std::vector<Node> nodes;
  for (const ControlFolder& folder : folders) {
    nodes.push_back(RunToy(job, folder,
                           job.NodeOptions(1, "2", {"--rdzv-id=digits", "--shutdown-timeout=600"}),
                           {"block:15", "touch:" + job.File("up{rank}"), "await:15",
                            "touch:" + job.File("told"), "until:" + job.File("saved")}));
    // The first one serves the job, and lives.
    AwaitMissingNodes(*nodes[0]);
  }
  for (const char* up : {"up0", "up1"}) REQUIRE(job.WaitForFile(up));
  nodes[1]->Signal(SIGKILL);
  REQUIRE(job.WaitForFile("told"));
  const Told at_once = AskUntil(job, folders[0], {"stop"}, Shows("ends already"));
  CHECK_MESSAGE(at_once.code == 0, at_once.Describe());
  CHECK(at_once.out == Contains("job digits ends already: node "));
  const Told status = Ask(job, folders[0], {"status"});
  CHECK_MESSAGE(status.code == 1, status.Describe());
  CHECK(status.out == Contains("stopping: round 1, "));
  CHECK(status.out == Contains("lost node: node "));
  const Told after_step = Ask(job, folders[0], {"stop", "--graceful"});
  CHECK_MESSAGE(after_step.code == 1, after_step.Describe());
  CHECK(after_step.out.empty());
  CHECK(after_step.err == Contains("; its workers are not asked to save any more\n"));
  job.Touch("saved");
  CHECK_MESSAGE(nodes[0]->Wait() == 121, nodes[0]->Describe());
}

TEST_CASE("stop: a job that forms is ended, too") {
  Job job;
  const ControlFolder folder;
  const Node ddprun = RunToy(job, folder, job.NodeOptions(2), {"wait"});
  AwaitMissingNodes(*ddprun);
  AskUntil(job, folder, {"status"}, Shows("forming: "));
  const Told told = Ask(job, folder, {"stop"});
  CHECK_MESSAGE(told.code == 0, told.Describe());
  CHECK_MESSAGE(ddprun->Wait() == kStopped, ddprun->Describe());
  CHECK(ddprun->err() == Contains(kReason));
}

TEST_CASE(
    "stop: one that comes while a failed round is stopped ends the job, and no round follows") {
  Job job;
  const ControlFolder folders[2];
  std::vector<Node> nodes;
  // Rank 3 outlives the failed round; the node of the failed rank joins again at once.
  const Strings steps = {"ignore:15@3", "touch:" + job.File("up{rank}-{restart}"),
                         "until:" + job.File("fail") + "@0", "exit:5@0#0",
                         "until:" + job.File("go")};
  for (const ControlFolder& folder : folders) {
    nodes.push_back(RunToy(job, folder,
                           job.NodeOptions(2, "2", {"--max-restarts=3", "--shutdown-timeout=600"}),
                           steps));
  }
  for (const char* up : {"up0-0", "up3-0"}) REQUIRE(job.WaitForFile(up));
  for (const ControlFolder& folder : folders) folder.Socket();
  job.Touch("fail");
  const auto is_stopping = [](const json& now) {
    return std::any_of(now["nodes"].begin(), now["nodes"].end(),
                       [](const json& node) { return node["state"] == "stopping"; });
  };
  for (const ControlFolder& folder : folders) StatusUntil(job, folder, is_stopping);
  CHECK(Ask(job, folders[0], {"stop"}).code == 0);
  for (const Node& node : nodes) {
    REQUIRE_MESSAGE(node->WaitForErr("stop on node "), node->Describe());
  }
  job.Touch("go");
  for (const Node& node : nodes) CHECK_MESSAGE(node->Wait() == kStopped, node->Describe());
  CHECK_FALSE(job.HasFile("up1-1"));
}

TEST_CASE("stop: beside an agent that does not answer no other job is chosen") {
  Job quiet;
  Job other;
  const ControlFolder folder;
  const Node hung = RunToy(quiet, folder, {"--nproc-per-node=1", "--rdzv-id=quiet"},
                           {"touch:" + quiet.File("up"), "wait"});
  REQUIRE(quiet.WaitForFile("up"));
  folder.Socket();
  const Node well = RunToy(other, folder, {"--nproc-per-node=1", "--rdzv-id=other"},
                           {"touch:" + other.File("up"), "wait"});
  REQUIRE(other.WaitForFile("up"));
  REQUIRE(Eventually([&] { return folder.Sockets().size() == 2; }));
  hung->Signal(SIGSTOP);
  const Told told = Ask(other, folder, {"stop"});
  CHECK_MESSAGE(told.code == 2, told.Describe());
  CHECK(told.err == Contains("which job is meant is not known"));
  CHECK(told.err == Contains("name one of those that do: other"));
  CHECK(other.HasWorker(0));
  const Told named = Ask(other, folder, {"stop", "other"});
  CHECK_MESSAGE(named.code == 0, named.Describe());
  CHECK_MESSAGE(well->Wait() == kStopped, well->Describe());
  hung->Signal(SIGCONT);
  hung->Signal(SIGTERM);
  CHECK_MESSAGE(hung->Wait() == kStopped, hung->Describe());
}

TEST_CASE("stop: several at once, from both nodes, are one") {
  Job job;
  const ControlFolder folders[2];
  std::vector<Node> nodes;
  for (const ControlFolder& folder : folders) {
    nodes.push_back(RunToy(job, folder, job.NodeOptions(1),
                           {"block:15", "await:15", "until:" + job.File("saved")}));
  }
  for (const ControlFolder& folder : folders) AwaitRunning(job, folder, 2);
  for (int i = 0; i < 3; ++i) {
    for (const ControlFolder& folder : folders) CHECK(Ask(job, folder, {"stop"}).code == 0);
  }
  CHECK(job.HasWorker(0));
  job.Touch("saved");
  for (const Node& node : nodes) CHECK_MESSAGE(node->Wait() == kStopped, node->Describe());
}

// Of nodes that do not serve the rendezvous when its own node is lost. Those on the same machine
// would.
const Strings kGuest = {"--max-restarts=3", "--rdzv-conf=is_host=0"};

// Node 0 serves the rendezvous; all ranks of both run.
std::vector<Node> TwoNodes(Job& job, const ControlFolder (&folders)[2]) {
  std::vector<Node> nodes;
  const Strings options = job.NodeOptions(1, "2", {"--max-restarts=3"});
  const Strings guest = job.NodeOptions(1, "2", kGuest);
  nodes.push_back(RunToy(job, folders[0], options, {"wait"}));
  AwaitMissingNodes(*nodes[0]);
  nodes.push_back(RunToy(job, folders[1], guest, {"wait"}));
  for (const ControlFolder& folder : folders) AwaitRunning(job, folder, 2);
  return nodes;
}

TEST_CASE("stop: with the coordinator gone it ends the node that was asked") {
  Job job;
  const ControlFolder folders[2];
  const std::vector<Node> nodes = TwoNodes(job, folders);
  nodes[0]->Signal(SIGKILL);
  CHECK(nodes[0]->Wait() == 128 + SIGKILL);
  REQUIRE_MESSAGE(nodes[1]->WaitForErr(" is lost: "), nodes[1]->Describe());
  const Told told = Ask(job, folders[1], {"stop"});
  CHECK_MESSAGE(told.code == 1, told.Describe());
  CHECK(told.out == "");
  CHECK(told.err == Contains(kAlone));
  CHECK_MESSAGE(nodes[1]->Wait() == kStopped, nodes[1]->Describe());
  CHECK(nodes[1]->err() == Contains(kReason));
}

TEST_CASE("stop: with the coordinator gone each agent of the job on the machine is asked") {
  Job job;
  const ControlFolder host, machine;
  const Node served = RunToy(job, host, job.NodeOptions(1, "3", {"--max-restarts=3"}), {"wait"});
  AwaitMissingNodes(*served, 2);
  std::vector<Node> nodes;
  for (int i = 0; i < 2; ++i) {
    nodes.push_back(RunToy(job, machine, job.NodeOptions(1, "3", kGuest), {"wait"}));
  }
  AwaitRunning(job, host, 3);  // and nobody has asked the other two before
  served->Signal(SIGKILL);
  CHECK(served->Wait() == 128 + SIGKILL);
  for (const Node& node : nodes) {
    REQUIRE_MESSAGE(node->WaitForErr(" is lost: "), node->Describe());
  }
  const Told told = Ask(job, machine, {"stop"});
  CHECK_MESSAGE(told.code == 1, told.Describe());
  CHECK(told.err ==
        Contains(std::string("; 2 agents of the job on this machine have") + kElsewhere));
  for (const Node& node : nodes) {
    CHECK_MESSAGE(node->Wait() == kStopped, node->Describe());
    CHECK(node->err() == Contains(kReason));
  }
}

TEST_CASE("stop: with the coordinator standing still it ends the node that was asked, soon") {
  Job job;
  const ControlFolder folders[2];
  const std::vector<Node> nodes = TwoNodes(job, folders);
  nodes[0]->Signal(SIGSTOP);
  const Told told = Ask(job, folders[1], {"stop"});
  CHECK_MESSAGE(told.code == 1, told.Describe());
  CHECK(told.out == "");
  CHECK(told.err == Contains(kAlone));
  CHECK_MESSAGE(nodes[1]->Wait() == kStopped, nodes[1]->Describe());
  CHECK(nodes[1]->err() == Contains(kReason));
  nodes[0]->Signal(SIGCONT);
  nodes[0]->Signal(SIGTERM);
  CHECK_MESSAGE(nodes[0]->Wait().has_value(), nodes[0]->Describe());
}

}  // namespace
}  // namespace ddprun::testing
