// Two releases of ddprun in one job, as while nodes are upgraded one after the other: one of
// another protocol is refused by name, and the job does not notice. The other release is a program
// of its own, linked with another number (tests/support/next_release.cc).
#include <signal.h>

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "rendezvous/base/release.h"
#include "tests/e2e/job.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

const char kNext[] = "tests/e2e/ddprun_next";
const char kThis[] = "ddprun";
const std::string kNextText = "ddprun 9.0.0-test (protocol 3)";

std::string ThisText() { return ReleaseText(ThisRelease()); }

class Releases {
 public:
  // A node of the job, by that release.
  std::unique_ptr<Subprocess> Node(const std::string& release,
                                   const std::vector<std::string>& more = {},
                                   Subprocess::Options how = {}) {
    std::vector<std::string> argv = {Runfile(release)};
    for (const std::string& option : job.NodeOptions(1, "2", more)) argv.push_back(option);
    argv.insert(argv.end(), {Runfile("tests/e2e/toy_worker"), "touch:" + job.File("up{rank}"),
                             "until:" + job.File("go")});
    return job.RunProgram(argv, std::move(how));
  }

  std::unique_ptr<Subprocess> Coordinator(const std::string& release) {
    auto coordinator = job.RunProgram(
        {Runfile(release), "coordinator", "--bind=" + job.endpoint(), "--rdzv-id=" + job.id()});
    REQUIRE_MESSAGE(coordinator->WaitForErr("listening on "), coordinator->Describe());
    return coordinator;
  }

  // Ends with 121 and one sentence of both releases.
  void CheckRefused(Subprocess& node, const std::string& coordinators, const std::string& own) {
    REQUIRE_MESSAGE(node.Wait() == 121, node.Describe());
    const std::string sentence = "ddprun: error: the coordinator at " + job.endpoint() + " runs " +
                                 coordinators + ", this node " + own +
                                 ": all nodes need releases of one protocol\n";
    CHECK_MESSAGE(node.err() == sentence, node.Describe());
  }

  void AwaitBothRanks() {
    REQUIRE(job.WaitForFile("up0"));
    REQUIRE(job.WaitForFile("up1"));
  }

  Job job;
};

TEST_CASE("releases: a node of another protocol is refused by name, and the job goes on") {
  for (const bool is_newer : {true, false}) {
    CAPTURE(is_newer);
    Releases with;
    const std::string jobs = is_newer ? kThis : kNext;
    const std::string others = is_newer ? kNext : kThis;
    const std::string jobs_text = is_newer ? ThisText() : kNextText;
    const std::string others_text = is_newer ? kNextText : ThisText();
    auto a = with.Node(jobs);
    AwaitMissingNodes(*a);
    auto early = with.Node(others);
    with.CheckRefused(*early, jobs_text, others_text);
    // Who waits is told which node, and both releases.
    REQUIRE_MESSAGE(a->WaitForErr(" runs " + others_text + ", the coordinator " + jobs_text),
                    a->Describe());
    auto b = with.Node(jobs);
    with.AwaitBothRanks();
    auto late = with.Node(others);
    with.CheckRefused(*late, jobs_text, others_text);
    with.job.Touch("go");
    REQUIRE_MESSAGE(a->Wait() == 0, a->Describe());
    REQUIRE_MESSAGE(b->Wait() == 0, b->Describe());
    CHECK(a->err() + b->err() != Contains("error"));
  }
}

TEST_CASE("releases: nodes of two versions that speak one protocol are one job, whoever hosts it") {
  for (const bool is_host_newer : {true, false}) {
    CAPTURE(is_host_newer);
    Releases with;
    const Subprocess::Options how = {
        .env = {{"TEST_RELEASE_PROTOCOL", std::to_string(ThisRelease().protocol)}}};
    auto a = with.Node(is_host_newer ? kNext : kThis, {}, how);
    AwaitMissingNodes(*a);
    auto b = with.Node(is_host_newer ? kThis : kNext, {}, how);
    with.AwaitBothRanks();
    with.job.Touch("go");
    REQUIRE_MESSAGE(a->Wait() == 0, a->Describe());
    REQUIRE_MESSAGE(b->Wait() == 0, b->Describe());
    CHECK(a->err() + b->err() != Contains("error"));
    CHECK(a->err() + b->err() != Contains("protocol"));
  }
}

TEST_CASE("releases: a coordinator of another protocol in its place ends no workers") {
  Releases with;
  auto coordinator = with.Coordinator(kThis);
  const std::vector<std::string> id = {"--rdzv-id=" + with.job.id()};
  auto stranger = with.Node(kNext, id);
  with.CheckRefused(*stranger, ThisText(), kNextText);
  auto a = with.Node(kThis, id);
  auto b = with.Node(kThis, id);
  with.AwaitBothRanks();
  const int pid = with.job.PidOfRank(1);
  coordinator->Signal(SIGKILL);
  REQUIRE(coordinator->Wait() == 128 + SIGKILL);
  auto next = with.Coordinator(kNext);
  const std::string said = " runs " + kNextText + ", this node " + ThisText() +
                           ": all nodes need releases of one protocol; this node's workers go on "
                           "without it";
  REQUIRE_MESSAGE(a->WaitForErr(said), a->Describe());
  REQUIRE_MESSAGE(b->WaitForErr(said), b->Describe());
  CHECK(with.job.PidOfRank(1) == pid);
  next->Signal(SIGKILL);
  REQUIRE(next->Wait() == 128 + SIGKILL);
  auto again = with.Coordinator(kThis);
  REQUIRE_MESSAGE(a->WaitForErr(" is back"), a->Describe());
  CHECK(with.job.PidOfRank(1) == pid);
  with.job.Touch("go");
  REQUIRE_MESSAGE(a->Wait() == 0, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 0, b->Describe());
  REQUIRE_MESSAGE(again->Wait() == 0, again->Describe());
}

// The greeting's key is alike in all protocols, so that a token hides nothing of this.
TEST_CASE("releases: with a token nodes of protocols 1 and 3 are refused by name as well") {
  for (const char* protocol : {"1", "3"}) {
    for (const bool is_host_other : {true, false}) {
      CAPTURE(protocol);
      CAPTURE(is_host_other);
      Releases with;
      const std::map<std::string, std::string> token = {
          {"DDPRUN_TOKEN", "9b1c7e02d4f8a6350e9c2b7d41f6a83c"}};
      std::map<std::string, std::string> other = token;
      other["TEST_RELEASE_PROTOCOL"] = protocol;
      const std::string other_text = std::string("ddprun 9.0.0-test (protocol ") + protocol + ")";
      auto a = with.Node(is_host_other ? kNext : kThis, {}, {.env = is_host_other ? other : token});
      AwaitMissingNodes(*a);
      auto b = with.Node(is_host_other ? kThis : kNext, {}, {.env = is_host_other ? token : other});
      with.CheckRefused(*b, is_host_other ? other_text : ThisText(),
                        is_host_other ? ThisText() : other_text);
      auto c = with.Node(is_host_other ? kNext : kThis, {}, {.env = is_host_other ? other : token});
      with.AwaitBothRanks();
      with.job.Touch("go");
      REQUIRE_MESSAGE(a->Wait() == 0, a->Describe());
      REQUIRE_MESSAGE(c->Wait() == 0, c->Describe());
    }
  }
}

TEST_CASE("releases: on the same machine one of another protocol asks a job and stops it") {
  Releases with;
  auto a = with.Node(kThis, {"--rdzv-id=" + with.job.id()});
  auto b = with.Node(kThis, {"--rdzv-id=" + with.job.id()});
  with.AwaitBothRanks();
  auto status = with.job.RunProgram({Runfile(kNext), "status", with.job.id()});
  REQUIRE_MESSAGE(status->Wait() == 0, status->Describe());
  CHECK(status->out() == Contains("running: round 1, 2 of 2 nodes, 2 ranks"));
  // From elsewhere it speaks the nodes' protocol.
  auto outside =
      with.job.RunProgram({Runfile(kNext), "status", "--coordinator=" + with.job.endpoint()});
  REQUIRE_MESSAGE(outside->Wait() == 2, outside->Describe());
  CHECK(outside->err() ==
        Contains("the coordinator at " + with.job.endpoint() + " runs " + ThisText() +
                 ", and this is " + kNextText + ": ask it with a release of its protocol"));
  auto stop = with.job.RunProgram({Runfile(kNext), "stop", with.job.id()});
  REQUIRE_MESSAGE(stop->Wait() == 0, stop->Describe());
  REQUIRE_MESSAGE(a->Wait() == 143, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 143, b->Describe());
}

}  // namespace
}  // namespace ddprun::testing
