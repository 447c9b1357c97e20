// Who belongs to which job, and what a node's going means for the others.
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;

std::string Quoted(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += "'" + word + "' ";
  return text;
}

std::vector<std::string> Command(Job& job, const std::string& steps) {
  std::vector<std::string> words = job.NodeOptions(1, "2");
  words.insert(words.begin(), Runfile("ddprun"));
  words.push_back(Runfile("tests/e2e/toy_worker"));
  words.push_back(steps);
  return words;
}

TEST_CASE(
    "membership: of two jobs with one id, one after the other, the second runs on all nodes") {
  for (int turn = 0; turn < 10; ++turn) {
    Job job;
    const std::string script = Quoted(Command(job, "touch:" + job.File("first{rank}"))) + "&& " +
                               Quoted(Command(job, "touch:" + job.File("second{rank}")));
    std::vector<Node> nodes;
    for (int i = 0; i < 2; ++i) nodes.push_back(job.RunProgram({"/bin/sh", "-c", script}));
    for (const Node& node : nodes) {
      REQUIRE_MESSAGE(node->Wait() == 0, nodes[0]->Describe(), nodes[1]->Describe());
    }
    for (const char* mark : {"first0", "first1", "second0", "second1"}) {
      REQUIRE_MESSAGE(job.HasFile(mark), mark, nodes[0]->Describe(), nodes[1]->Describe());
    }
  }
}

// Two nodes of one worker, which wait; [0] hosts the coordinator.
std::vector<Node> StartTwo(Job& job, const std::string& nodes, std::vector<std::string> more,
                           const std::vector<std::string>& steps) {
  std::vector<Node> started;
  started.push_back(job.Run(job.NodeOptions(1, nodes, more), steps));
  // Its processes are there before its port is, which the other one would take.
  const auto port = static_cast<uint16_t>(job.port());
  REQUIRE(Eventually([&] { return rendezvous::TryConnectTo(port).is_open(); }));
  started.push_back(job.Run(job.NodeOptions(1, nodes, more), steps));
  for (const char* up : {"up0.0", "up1.0"}) {
    REQUIRE_MESSAGE(job.WaitForFile(up), started[0]->Describe(), started[1]->Describe());
  }
  return started;
}

TEST_CASE("membership: without restarts a node that leaves a fixed job ends it with 121") {
  Job job;
  const std::vector<Node> nodes =
      StartTwo(job, "2", {}, {"touch:" + job.File("up{rank}.{restart}"), "wait"});
  nodes[1]->Signal(SIGTERM);
  REQUIRE_MESSAGE(nodes[1]->Wait() == 128 + SIGTERM, nodes[1]->Describe());
  REQUIRE_MESSAGE(nodes[0]->Wait() == 121, nodes[0]->Describe());
  CHECK(nodes[0]->err() == Contains("left: stopped by SIGTERM; no restarts allowed"));
}

TEST_CASE("membership: a node that is told to stop leaves an elastic job, which goes on for free") {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    CAPTURE(signal);
    Job job;
    const std::vector<Node> nodes =
        StartTwo(job, "1:2", {"--max-restarts=1", "--rdzv-conf=last_call_timeout=60"},
                 {"env:WORLD_SIZE", "print:restart {restart}",
                  "touch:" + job.File("up{rank}.{restart}"), "until:" + job.File("go")});
    nodes[1]->Signal(signal);
    REQUIRE_MESSAGE(nodes[1]->Wait() == 128 + signal, nodes[1]->Describe());
    const std::string left = std::string("left: stopped by SIG") + sigabbrev_np(signal);
    REQUIRE_MESSAGE(nodes[0]->WaitForErr(left), nodes[0]->Describe());
    const auto has_gone_on = [&] {
      const std::string out = nodes[0]->out();
      const size_t both = out.rfind("WORLD_SIZE=2\n");
      return both != std::string::npos && out.find("WORLD_SIZE=1\n", both) != std::string::npos;
    };
    REQUIRE_MESSAGE(Eventually(has_gone_on), nodes[0]->Describe());
    job.Touch("go");
    REQUIRE_MESSAGE(nodes[0]->Wait() == 0, nodes[0]->Describe());
    CHECK(nodes[0]->out() != Contains("restart 1"));
  }
}

TEST_CASE("membership: an agent that is killed alone is lost once its connection stays closed") {
  Job job;
  // Far longer than the test may take: it is not silence that tells.
  const std::vector<Node> nodes =
      StartTwo(job, "2", {"--rdzv-conf=keep_alive_interval=100,keep_alive_max_attempt=10"},
               {"touch:" + job.File("up{rank}.{restart}"), "wait"});
  nodes[1]->Signal(SIGKILL);
  REQUIRE(nodes[1]->Wait() == 128 + SIGKILL);
  REQUIRE_MESSAGE(nodes[0]->Wait() == 121, nodes[0]->Describe());
  CHECK(nodes[0]->err() == Contains("is lost: its connection closed, and it has not come back"));
}

// The first thread of a process, alone, while this lives.
class StoppedThread {
 public:
  explicit StoppedThread(pid_t pid) : pid_(pid) {
    REQUIRE(ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) == 0);
    REQUIRE(ptrace(PTRACE_INTERRUPT, pid, nullptr, nullptr) == 0);
    int status = 0;
    REQUIRE(waitpid(pid, &status, __WALL) == pid);
    REQUIRE(WIFSTOPPED(status));
  }
  ~StoppedThread() { CHECK(ptrace(PTRACE_DETACH, pid_, nullptr, nullptr) == 0); }

 private:
  const pid_t pid_;
};

TEST_CASE("membership: a node whose ddprun stands still is lost and comes back when it works") {
  for (const size_t stuck : {size_t{1}, size_t{0}}) {  // 0: with the coordinator
    CAPTURE(stuck);
    Job job;
    const std::vector<Node> nodes = StartTwo(
        job, "1:2",
        {"--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=3,last_call_timeout=60"},
        {"env:WORLD_SIZE", "touch:" + job.File("up{rank}.{restart}"), "until:" + job.File("go")});
    const Subprocess& other = *nodes[1 - stuck];
    const auto has_size = [&other](const std::string& size, size_t from) {
      return other.out().find("WORLD_SIZE=" + size + "\n", from);
    };
    const size_t both = has_size("2", 0);
    REQUIRE(both != std::string::npos);
    {
      const StoppedThread thread(nodes[stuck]->pid());
      REQUIRE_MESSAGE(Eventually([&] { return has_size("1", both) != std::string::npos; }),
                      other.Describe());
      CHECK(other.err() ==
            Contains("is lost: its ddprun does not work: its main thread has stood still for 3 s"));
    }
    const size_t alone = has_size("1", both);
    REQUIRE_MESSAGE(Eventually([&] { return has_size("2", alone) != std::string::npos; }),
                    nodes[0]->Describe(), nodes[1]->Describe());
    job.Touch("go");
    for (const Node& node : nodes) REQUIRE_MESSAGE(node->Wait() == 0, node->Describe());
  }
}

TEST_CASE(
    "membership: agents that are all told to stop, one shortly after the other, end with 143") {
  Job job;
  const std::vector<Node> nodes =
      StartTwo(job, "2", {}, {"touch:" + job.File("up{rank}.{restart}"), "wait"});
  // Held, so that it finds both at once, however busy the machine is: its own signal, and that the
  // other one leaves. That it waits a second for a signal is leaving_test's.
  nodes[0]->Signal(SIGSTOP);
  nodes[1]->Signal(SIGTERM);
  REQUIRE_MESSAGE(Eventually([&] { return !job.HasWorker(1); }), nodes[1]->Describe());
  nodes[0]->Signal(SIGTERM);
  nodes[0]->Signal(SIGCONT);
  CHECK_MESSAGE(nodes[1]->Wait() == 128 + SIGTERM, nodes[1]->Describe());
  CHECK_MESSAGE(nodes[0]->Wait() == 128 + SIGTERM, nodes[0]->Describe());
}

TEST_CASE("membership: on one machine another agent takes the port of a coordinator that died") {
  Job job;
  // The agent that takes the port holds a last call of its own.
  const std::vector<std::string> more = {"--rdzv-conf=last_call_timeout=10"};
  const std::vector<Node> nodes = StartTwo(
      job, "1:2", more,
      {"touch:" + job.File("up{rank}.{restart}"), "until:" + job.File("go"), "print:done"});
  const int workers[] = {job.PidOfRank(0), job.PidOfRank(1)};
  nodes[0]->Signal(SIGKILL);
  REQUIRE(nodes[0]->Wait() == 128 + SIGKILL);
  REQUIRE_MESSAGE(Eventually([&] {
                    const int now = job.PidOfRank(0);
                    return now != 0 && now != workers[0] && now != workers[1];
                  }),
                  nodes[1]->Describe());
  job.Touch("go");
  REQUIRE_MESSAGE(nodes[1]->Wait() == 0, nodes[1]->Describe());
}

TEST_CASE("membership: a node that is refused is named to the node that waits") {
  Job job;
  const Node waiting = job.Run(job.NodeOptions(1, "2"), {"wait"});
  AwaitMissingNodes(*waiting);
  const Node refused = job.Run(job.NodeOptions(1, "2", {"--max-restarts=3"}), {"wait"});
  REQUIRE_MESSAGE(refused->Wait() == 121, refused->Describe());
  CHECK(refused->err() == Contains("--max-restarts"));
  CHECK_MESSAGE(waiting->WaitForErr("refused"), waiting->Describe());
  const Node second = job.Run(job.NodeOptions(1, "2"), {"wait"});
  CHECK_MESSAGE(waiting->WaitForErr("2 of 2 nodes: starting 2 ranks"), waiting->Describe());
  waiting->Signal(SIGTERM);
  CHECK(waiting->Wait() == 128 + SIGTERM);
  CHECK_MESSAGE(second->Wait() == 121, second->Describe());
}

TEST_CASE("membership: a node whose worker ends after the host died does not wait for another") {
  Job job;
  std::string end;
  SUBCASE("by a failure") { end = "exit:3"; }
  SUBCASE("with 0, while the host's had not ended") { end = "exit:0"; }
  const std::vector<Node> nodes = StartTwo(
      job, "2", {}, {"touch:" + job.File("up{rank}.{restart}"), "until:" + job.File("go"), end});
  nodes[0]->Signal(SIGKILL);
  REQUIRE(nodes[0]->Wait() == 128 + SIGKILL);
  job.Touch("go");  // before the node counts as gone, and join_timeout is far away
  REQUIRE_MESSAGE(nodes[1]->Wait() == 121, nodes[1]->Describe());
  CHECK(nodes[1]->err() == Contains("with it the ranks of node"));
}

TEST_CASE("membership: with restarts left a node that does not come back ends the job with 121") {
  Job job;
  size_t lost = 0;
  SUBCASE("another than the host") { lost = 1; }
  SUBCASE("the host, whose place another agent takes") { lost = 0; }
  const std::vector<Node> nodes =
      StartTwo(job, "2", {"--max-restarts=2", "--rdzv-conf=join_timeout=12"},
               {"touch:" + job.File("up{rank}.{restart}"), "until:" + job.File("go"), "exit:3"});
  nodes[lost]->Signal(SIGKILL);
  REQUIRE(nodes[lost]->Wait() == 128 + SIGKILL);
  job.Touch("go");  // what failed of it is no cause
  const Node& other = nodes[1 - lost];
  REQUIRE_MESSAGE(other->Wait() == 121, other->Describe());
  CHECK(other->err() == Contains("gave up after 12 s"));
}

// What srun gives a task of a step of two nodes.
Subprocess::Options InStep(const std::string& job, const std::string& step) {
  return {.env = {{"SLURM_JOB_ID", job},
                  {"SLURM_STEP_ID", step},
                  {"SLURM_JOB_NODELIST", "n[1-2]"},
                  {"SLURM_STEP_NODELIST", "n[1-2]"},
                  {"SLURM_NODEID", "0"}}};
}

TEST_CASE("membership: a second job by chance is refused, and a spare says that it ran nothing") {
  Job job;
  // Nobody has named a job.
  std::vector<std::string> options = job.NodeOptions(1, "1");
  std::erase_if(options, [](const std::string& option) { return option.starts_with("--rdzv_id"); });
  const std::vector<std::string> steps = {"touch:" + job.File("up"), "until:" + job.File("end")};
  const Node first = job.Run(options, steps);
  REQUIRE(job.WaitForFile("up"));
  const Node other = job.Run(options, {"print:other"});
  CHECK_MESSAGE(other->Wait() == 121, other->Describe());
  CHECK(other->err() == Contains("--rdzv-id"));
  CHECK(other->out().empty());
  const Node spare = job.Run(options, steps);
  CHECK_MESSAGE(spare->WaitForErr("standing by as a spare"), spare->Describe());
  job.Touch("end");
  CHECK_MESSAGE(first->Wait() == 0, first->Describe());
  CHECK_MESSAGE(spare->Wait() == 0, spare->Describe());
  CHECK(spare->err() == Contains("ran nothing"));
}

TEST_CASE("membership: agents of another Slurm job or step are refused, whatever their --rdzv_id") {
  Job job;
  const std::vector<std::string> options = job.NodeOptions(1, "2");
  const Node waiting = job.Run(options, {"wait"}, InStep("12", "0"));
  AwaitMissingNodes(*waiting);
  const Node step = job.Run(options, {"wait"}, InStep("12", "1"));
  REQUIRE_MESSAGE(step->Wait() == 121, step->Describe());
  const std::string of_step = "is of Slurm step 12.1, the nodes here of Slurm step 12.0";
  CHECK(step->err() == Contains(of_step));
  CHECK_MESSAGE(waiting->WaitForErr(of_step), waiting->Describe());
  const Node other = job.Run(options, {"wait"}, InStep("13", "0"));
  REQUIRE_MESSAGE(other->Wait() == 121, other->Describe());
  CHECK(other->err() == Contains("is of Slurm job 13, the nodes here of Slurm job 12"));
  const Node second = job.Run(options, {"wait"}, InStep("12", "0"));
  CHECK_MESSAGE(waiting->WaitForErr("2 of 2 nodes: starting 2 ranks"), waiting->Describe());
  // The step's nodes are all here.
  const Node spare = job.Run(options, {"wait"}, InStep("12", "0"));
  REQUIRE_MESSAGE(spare->Wait() == 121, spare->Describe());
  CHECK(spare->err() == Contains("--ntasks-per-node=1"));
  waiting->Signal(SIGTERM);
  CHECK(waiting->Wait() == 128 + SIGTERM);
  CHECK_MESSAGE(second->Wait() == 121, second->Describe());
}

}  // namespace
}  // namespace ddprun::testing
