// `ddprun check`, and --check before a job: real processes on this host.
#include <doctest/doctest.h>

#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/job.h"
#include "tests/gates/gates.h"
#include "tests/support/contains.h"
#include "tests/support/json.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;

// Between processes that share two cores with other tests ranks differ by much.
constexpr char kTolerance[] = "--tolerance=40";

// Code that the thread sanitizer has instrumented is slow beyond what is planted.
#if defined(__SANITIZE_THREAD__)
constexpr bool kIsSpeedKnown = false;
#else
constexpr bool kIsSpeedKnown = true;
#endif
constexpr char kWhyNotSpeed[] = "under the thread sanitizer no speed can be judged";

std::map<std::string, std::string> With(const std::string& fault) { return {{kCheckFault, fault}}; }

// Three agents of one rank each; `bad` has that fault. Node 0 is the first.
struct ThreeNodes {
  explicit ThreeNodes(const std::string& fault = "", size_t bad = 3,
                      const std::string& tolerance = kTolerance)
      : job(fault.empty() ? "ddprun" : kGatedDdprun) {
    for (size_t i = 0; i < 3; ++i) {
      std::vector<std::string> words = job.NodeOptions(1, "3", {tolerance});
      words.insert(words.begin(), "check");
      nodes.push_back(job.RunRaw(words, {.env = With(i == bad ? fault : "")}));
      // Which one is node 0 is known; the others are told apart by their ranks.
      if (i == 0) REQUIRE_MESSAGE(nodes[0]->WaitForErr("waiting for"), nodes[0]->Describe());
      if (i == 1) AwaitMissingNodes(*nodes[0]);
    }
  }
  // The last line of what node 0 prints, once all have ended with this code.
  std::string SentenceAt(int code) {
    for (const auto& node : nodes) REQUIRE_MESSAGE(node->Wait() == code, node->Describe());
    CHECK(job.IsGone());
    std::string out;
    for (const auto& node : nodes) out += node->out();
    REQUIRE_MESSAGE(CountOf(out, "check: ") == 1, nodes[0]->Describe());
    return out.substr(out.find("check: "));
  }

  Job job;
  std::vector<std::unique_ptr<Subprocess>> nodes;
};

TEST_CASE("check: on one node the ranks are compared") {
  Job job;
  auto check = job.RunRaw({"check", "--nproc-per-node=2", kTolerance});
  REQUIRE_MESSAGE(check->Wait() == 0, check->Describe());
  CHECK(job.IsGone());
  CHECK(check->out() == Contains("RANK  STATE  ON"));
  CHECK(check->out() == Contains("\ncheck: 2 ranks: all are well\n"));
  CHECK(check->err() == "");
}

TEST_CASE("check: --json has the same for programs") {
  Job job;
  auto check = job.RunRaw({"check", "--nproc-per-node=3", "--json", kTolerance});
  REQUIRE_MESSAGE(check->Wait() == 0, check->Describe());
  const auto json = ParseJson(check->out());
  REQUIRE(json.has_value());
  CHECK(json->get<bool>("is_well"));
  CHECK(json->get<std::string>("sentence") == "check: 3 ranks: all are well");
  CHECK(json->get_child("units").size() == 3);
  CHECK(json->get_child("rounds").size() == 3);
  CHECK(ElementOf(*json, "units", 0).get<double>("compute_ms") > 0);
}

TEST_CASE("check: options of a program's job are none of it, and its variables are left alone") {
  Job job;
  auto wrong = job.RunRaw({"check", "--max-restarts=1"});
  CHECK(wrong->Wait() == 2);
  CHECK(wrong->err() == Contains("ddprun: error: check: unknown option '--max-restarts"));
  auto right = job.RunRaw({"check", kTolerance}, {.env = {{"PET_MAX_RESTARTS", "-1"}}});
  CHECK_MESSAGE(right->Wait() == 0, right->Describe());
}

TEST_CASE("check: three nodes that are well") {
  ThreeNodes three;
  CHECK(three.SentenceAt(0) == "check: 3 nodes, 3 ranks: all are well\n");
}

TEST_CASE("check: a node that computes slowly is named on all nodes") {
  if (!kIsSpeedKnown) return SkipTest(kWhyNotSpeed);
  ThreeNodes three("slow_compute", 2, "--tolerance=4");
  const std::string sentence = three.SentenceAt(1);
  CHECK(sentence == Contains(" is slow: computes "));
  // The nodes that did not print the table say it as well.
  for (const auto& node : {three.nodes[1].get(), three.nodes[2].get()}) {
    CHECK(node->err() == Contains("ddprun: check: 3 nodes, 3 ranks: node "));
    CHECK(node->err() != Contains("FAILED"));
  }
}

TEST_CASE("check: a node with a slow network is named, and not the two that waited for it") {
  if (!kIsSpeedKnown) return SkipTest(kWhyNotSpeed);
  ThreeNodes three("slow_network", 0);
  const std::string sentence = three.SentenceAt(1);
  CHECK(sentence == Contains("3 ranks: node 0 ("));
  CHECK(sentence == Contains(" is slow: all-reduces with others "));
  CHECK(sentence != Contains("node 1"));
  CHECK(sentence != Contains("node 2"));
}

TEST_CASE("check: a process that dies in a pair costs the others nothing, and names its node") {
  ThreeNodes three("die", 0);
  const std::string sentence = three.SentenceAt(1);
  CHECK(sentence == Contains("3 ranks: node 0 ("));
  CHECK(sentence == Contains(" is broken: rank 0 was killed by signal 9 (SIGKILL) in round 1\n"));
}

TEST_CASE("check: one that hangs in a pair is ended by its deadline and named") {
  ThreeNodes three("hang", 0);
  CHECK(three.SentenceAt(1) == Contains(" is broken: rank 0 did not end within 10 s in round 1\n"));
}

TEST_CASE("check: a stopped node gives no sign of life and is named, also where it would lead") {
  for (const int rank : {0, 2}) {
    CAPTURE(rank);
    ThreeNodes three;
    REQUIRE(Eventually([&] { return three.job.HasWorker(rank); }));
    // The rank and what it has started so far.
    for (int i = 0; i < 3; ++i) {
      for (const int pid : three.job.PidsOfRank(rank)) kill(pid, SIGSTOP);
    }
    const std::string node = "node " + std::to_string(rank);
    CHECK(three.SentenceAt(1) == Contains("3 ranks: " + node));
  }
}

TEST_CASE("check: of two nodes the one whose process died is named") {
  Job job(kGatedDdprun);
  std::vector<std::string> words = job.NodeOptions(1, "2", {kTolerance});
  words.insert(words.begin(), "check");
  auto a = job.RunRaw(words);
  AwaitMissingNodes(*a);
  auto b = job.RunRaw(words, {.env = With("die")});
  REQUIRE_MESSAGE(a->Wait() == 1, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 1, b->Describe());
  CHECK(a->out() == Contains("check: 2 nodes, 2 ranks: node 1 ("));
  CHECK(a->out() == Contains(" is broken: rank 1 was killed by signal 9 (SIGKILL) in round 1\n"));
}

TEST_CASE("--check: a node that is well says so and runs the job") {
  Job job;
  auto one = job.Run({"--check", "--nproc-per-node=1"}, {"print:rank {rank}"});
  REQUIRE_MESSAGE(one->Wait() == 0, one->Describe());
  CHECK(one->out() == "rank 0\n");
  CHECK(one->err() == Contains("ddprun: check: 1 rank: it works"));
}

TEST_CASE("--check: a node that is not well leaves its place to a spare") {
  Job job(kGatedDdprun);
  const std::vector<std::string> steps = {"print:rank {rank} of {world}"};
  auto a = job.Run(job.NodeOptions(1, "2"), steps);
  AwaitMissingNodes(*a);
  auto bad = job.Run(job.NodeOptions(2, "2", {"--check"}), steps, {.env = With("die")});
  REQUIRE_MESSAGE(bad->Wait() == 120, bad->Describe());
  CHECK(bad->out() == "");
  CHECK(bad->err() == Contains("ddprun: error: --check: this node does not join: 2 ranks: rank "));
  CHECK_FALSE(a->Wait(0ms).has_value());
  auto spare = job.Run(job.NodeOptions(1, "2"), steps);
  REQUIRE_MESSAGE(a->Wait() == 0, a->Describe());
  REQUIRE_MESSAGE(spare->Wait() == 0, spare->Describe());
}

TEST_CASE("--check: a signal ends it before the job") {
  Job job(kGatedDdprun);
  auto one = job.Run({"--check", "--nproc-per-node=2"}, {"print:started"}, {.env = With("hang")});
  REQUIRE(Eventually([&] { return job.HasWorker(1); }));
  one->Signal(SIGTERM);
  CHECK(one->Wait() == 128 + SIGTERM);
  CHECK(one->out() == "");
  CHECK(job.IsGone(30s));
}

}  // namespace
}  // namespace ddprun::testing
