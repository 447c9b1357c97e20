// Nodes that are bad leave a job, and no restart lands on them again. Each agent has a host name of
// its own, in a UTS namespace.
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;

// Needs root, or a kernel that gives namespaces to everybody.
bool HasHostNames() {
  Subprocess probe({"/bin/sh", "-c", "unshare --uts sh -c 'echo x > /proc/sys/kernel/hostname'"});
  return probe.Wait() == 0;
}

// `ddprun` on a host of that name, one of at most four of a job, with one restart.
Node Start(Job& job, const std::string& host, std::vector<std::string> more,
           const std::string& program) {
  std::vector<std::string> argv = {
      "/bin/sh", "-c",
      "exec unshare --uts sh -c 'echo \"$0\" > /proc/sys/kernel/hostname && exec \"$@\"' \"$0\" "
      "\"$@\"",
      host, Runfile("ddprun")};
  more.insert(more.begin(), {"--max-restarts=1", "--no-python"});
  for (std::string& option : job.NodeOptions(1, "4", more)) argv.push_back(std::move(option));
  argv.insert(argv.end(), {"/bin/sh", "-c", program});
  return job.RunProgram(std::move(argv));
}

std::string Describe(const std::map<std::string, Node>& nodes) {
  std::string text;
  for (const auto& [host, node] : nodes) text += host + ":\n" + node->Describe() + "\n";
  return text;
}

// The worker of n3 dies at once, each time. All others wait until n6 has a place.
std::string Program(const Job& job) {
  return "case $(uname -n) in n3) exit 7;; n6) : > " + job.File("done") + ";; esac; exec " +
         Runfile("tests/e2e/toy_worker") + " until:" + job.File("done");
}

// Runs a job of four nodes, n1 to n4, with n5 as a spare.
std::map<std::string, Node> RunFive(Job& job, const std::vector<std::string>& options) {
  const std::string program = Program(job);
  std::map<std::string, Node> nodes;
  // The first one hosts the rendezvous.
  nodes["n1"] = Start(job, "n1", options, program);
  AwaitMissingNodes(*nodes["n1"], 3);
  for (const char* spare : {"n2", "n4"}) nodes[spare] = Start(job, spare, options, program);
  AwaitMissingNodes(*nodes["n1"], 1);
  nodes["n3"] = Start(job, "n3", options, program);
  REQUIRE_MESSAGE(nodes["n1"]->WaitForErr("4 of 4 nodes"), Describe(nodes));
  nodes["n5"] = Start(job, "n5", options, program);
  return nodes;
}

TEST_CASE("bad nodes: a restart never lands on one again, and the job ends well") {
  if (!HasHostNames()) return SkipTest("no UTS namespaces here");
  Job job;
  // It fails on n2 from its second time on.
  const std::string check = "case $(uname -n) in n2) echo x >> " + job.File("checks") +
                            "; if [ $(wc -l < " + job.File("checks") +
                            ") -gt 1 ]; then echo GPU 3 is lost; exit 1; fi;; esac; echo fine";
  const std::vector<std::string> options = {
      "--health-check=" + check, "--max-node-failures=1",
      "--on-bad-node=printf '%s|%s\\n' >> " + job.File("cordoned")};
  auto nodes = RunFive(job, options);
  // It takes the last free place.
  REQUIRE_MESSAGE(nodes.at("n3")->Wait() == 119, Describe(nodes));
  nodes["n6"] = Start(job, "n6", options, Program(job));
  for (const char* host : {"n1", "n4", "n5", "n6"}) {
    CHECK_MESSAGE(nodes.at(host)->Wait() == 0, Describe(nodes));
  }
  for (const char* host : {"n2", "n3"}) {
    CHECK_MESSAGE(nodes.at(host)->Wait() == 119, Describe(nodes));
  }
  CHECK(nodes.at("n2")->err() == Contains("node n2 is bad: GPU 3 is lost"));
  CHECK(nodes.at("n3")->err() == Contains("node n3 is bad: in 2 of the last 10 rounds"));
  // The site hears of each once. The round that ended with n3's first failure was n2's to pay, or
  // n3's: the check of n2 had come by then.
  const std::string cordoned = ReadFile(job.File("cordoned"));
  CHECK_MESSAGE(CountOf(cordoned, "n2|node n2 is bad: GPU 3 is lost\n") == 1,
                (cordoned + Describe(nodes)));
  CHECK_MESSAGE(CountOf(cordoned, "n3|node n3 is bad: in 2 of the last 10 rounds") == 1,
                (cordoned + Describe(nodes)));
  CHECK_MESSAGE(CountOf(cordoned, "\n") == 2, (cordoned + Describe(nodes)));
  CHECK(nodes.at("n1")->err() == Contains("restart 1 of 1"));
}

TEST_CASE("bad nodes: without the options the job restarts on them, and ends with the failure") {
  if (!HasHostNames()) return SkipTest("no UTS namespaces here");
  Job job;
  const auto nodes = RunFive(job, {});
  for (const char* host : {"n1", "n2", "n3", "n4"}) {
    CHECK_MESSAGE(nodes.at(host)->Wait() == 7, Describe(nodes));
  }
  // The job may have ended before it came.
  nodes.at("n5")->Signal(SIGTERM);
  nodes.at("n5")->Wait();
  CHECK(nodes.at("n1")->err() == Contains("restart 1 of 1"));
  CHECK(nodes.at("n1")->err() != Contains("bad"));
}

TEST_CASE("bad nodes: a host in quarantine is refused under a new agent") {
  if (!HasHostNames()) return SkipTest("no UTS namespaces here");
  Job job;
  const std::vector<std::string> bad = {"--health-check=echo no fan; exit 1"};
  const std::vector<std::string> good = {"--health-check=echo fine"};
  auto host = Start(job, "n1", good, "exit 0");
  AwaitMissingNodes(*host, 3);
  auto first = Start(job, "n2", bad, "exit 0");
  CHECK_MESSAGE(first->Wait() == 119, first->Describe());
  auto second = Start(job, "n2", good, "exit 0");
  CHECK_MESSAGE(second->Wait() == 119, second->Describe());
  CHECK_MESSAGE(CountOf(second->err(), "host n2 is in quarantine for ") == 1, second->Describe());
  CHECK(second->err() == Contains("node n2 is bad: no fan"));
  host->Signal(SIGTERM);
  host->Wait();
}

TEST_CASE("bad nodes: a broken check ends the job and does not drain the cluster") {
  if (!HasHostNames()) return SkipTest("no UTS namespaces here");
  Job job;
  const std::vector<std::string> options = {
      "--health-check=case $(uname -n) in n1) ;; *) exit 1;; esac", "--max-bad-nodes=1",
      "--on-bad-node=echo >> " + job.File("cordoned")};
  auto host = Start(job, "n1", options, "exit 0");
  AwaitMissingNodes(*host, 3);
  auto first = Start(job, "n2", options, "exit 0");
  CHECK_MESSAGE(first->Wait() == 119, first->Describe());
  auto second = Start(job, "n3", options, "exit 0");
  CHECK_MESSAGE(second->Wait() == 119, second->Describe());
  CHECK_MESSAGE(host->Wait() == 121, host->Describe());
  CHECK(host->err() == Contains("--max-bad-nodes=1 allows no more"));
  CHECK(ReadFile(job.File("cordoned")) == Contains("n2"));
  CHECK(ReadFile(job.File("cordoned")) != Contains("n3"));
}

TEST_CASE("bad nodes: a check without a result is a warning, or refused") {
  Job job;
  const std::vector<std::string> late = {"--standalone", "--health-check=exec sleep 100",
                                         "--health-timeout=1"};
  auto admitted = job.Run(late, {"print:ran"});
  CHECK_MESSAGE(admitted->Wait() == 0, admitted->Describe());
  CHECK(admitted->err() == Contains("--health-check has no result: it did not end within 1 s"));
  std::vector<std::string> strict = {"--standalone", "--health-check=exit 3",
                                     "--health-unknown=refuse"};
  auto refused = job.Run(strict, {"print:ran"});
  CHECK_MESSAGE(refused->Wait() == 119, refused->Describe());
  CHECK(refused->err() == Contains("its end: exit code 3"));
  CHECK(refused->out().empty());
}

}  // namespace
}  // namespace ddprun::testing
