// A cable is pulled while a job runs: bytes vanish, and nobody is told that a connection has ended.
#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/steady_clock.h"
#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/netns.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;

TEST_CASE("network cut: the lost node is evicted, and gets its place when the cable is back") {
  std::string why;
  const auto hosts = Hosts::Make(2, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  Job job;
  const std::vector<std::string> options = {
      "--nnodes=2",    "--nproc-per-node=1",  "--max-restarts=1",
      "--rdzv-id=cut", "--rdzv-backend=c10d", "--rdzv-endpoint=" + hosts->Address(1) + ":29400"};
  const std::vector<std::string> steps = {"touch:" + job.File("up{rank}.{pid}"),
                                          "touch:" + job.File("up{rank}"),
                                          "until:" + job.File("go"), "print:restart {restart}"};
  const Node a = job.Run(options, steps, {.netns = hosts->Name(1)});
  const Node b = job.Run(options, steps, {.netns = hosts->Name(2)});
  REQUIRE_MESSAGE(job.WaitForFile("up0"), a->Describe(), b->Describe());
  REQUIRE_MESSAGE(job.WaitForFile("up1"), a->Describe(), b->Describe());
  const int old_0 = job.PidOfRank(0);
  const int old_1 = job.PidOfRank(1);

  const size_t said = a->err().size();
  hosts->SetLink(2, false);
  // The coordinator's side ends the round and waits for a second node.
  REQUIRE_MESSAGE(
      Eventually([&] { return a->err().find("waiting for 1 more", said) != std::string::npos; }),
      a->Describe());
  REQUIRE_MESSAGE(Eventually([&] { return !job.HasWorker(0); }), a->Describe());
  // For the side that is cut off the coordinator's machine is lost, and rank 0 with it.
  CHECK_MESSAGE(b->WaitForErr("its machine has answered neither data nor connections for 10 s"),
                b->Describe());
  REQUIRE_MESSAGE(Eventually([&] { return !job.HasWorker(1); }), b->Describe());

  hosts->SetLink(2, true);
  REQUIRE_MESSAGE(Eventually([&] {
                    const int new_0 = job.PidOfRank(0), new_1 = job.PidOfRank(1);
                    return new_0 != 0 && new_0 != old_0 && new_1 != 0 && new_1 != old_1;
                  }),
                  a->Describe(), b->Describe());
  job.Touch("go");
  for (const Node* node : {&a, &b}) {
    REQUIRE_MESSAGE((*node)->Wait() == 0, a->Describe(), b->Describe());
    // A lost node is a change of membership and costs nothing of the budget.
    CHECK((*node)->out() == "restart 0\n");
  }
}

// Three nodes that are started once; the first hosts.
std::vector<Node> StartThree(Job& job, const Hosts& hosts) {
  std::vector<Node> nodes;
  for (int i = 1; i <= 3; ++i) {
    const std::vector<std::string> options = {"--nnodes=3", "--nproc-per-node=1",
                                              "--rdzv-id=" + job.id(), "--rdzv-backend=c10d",
                                              "--rdzv-endpoint=" + hosts.Address(1) + ":29400"};
    const std::string up = "touch:" + job.File("up{rank}");
    nodes.push_back(job.Run(options, {up, "wait"}, {.netns = hosts.Name(i)}));
  }
  for (const char* up : {"up0", "up1", "up2"}) {
    REQUIRE_MESSAGE(job.WaitForFile(up), nodes[0]->Describe(), nodes[1]->Describe());
  }
  return nodes;
}

TEST_CASE("network cut: the others know of a lost head node when the evict time is over") {
  std::string why;
  const auto hosts = Hosts::Make(3, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  Job job;
  const std::vector<Node> nodes = StartThree(job, *hosts);
  const TimePoint cut = SteadyNow();
  hosts->SetLink(1, false);
  for (const Node* node : {&nodes[1], &nodes[2]}) {
    REQUIRE_MESSAGE((*node)->Wait() == 121, (*node)->Describe());
    const Duration took = SteadyNow() - cut;
    MESSAGE("the lost head was known, and all ended, after "
            << std::chrono::duration_cast<std::chrono::milliseconds>(took).count() << " ms");
    for (const char* part : {"its machine has answered neither data nor connections for 10 s",
                             "no restarts allowed (--max-restarts=0)"}) {
      CHECK((*node)->err() == Contains(part));
    }
  }
  CHECK_MESSAGE(nodes[0]->Wait() == 121, nodes[0]->Describe());
}

TEST_CASE("network cut: a head whose process alone is silent is waited for") {
  std::string why;
  const auto hosts = Hosts::Make(3, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  Job job;
  const std::vector<Node> nodes = StartThree(job, *hosts);
  nodes[0]->Signal(SIGSTOP);
  // Longer than the evict time: that the contact is lost is told after it has been for 5 s, which
  // the connections' own keepalive finds after 10 s.
  for (const Node* node : {&nodes[1], &nodes[2]}) {
    CHECK_MESSAGE((*node)->WaitForErr("this node's workers go on without it up to"),
                  (*node)->Describe());
    CHECK((*node)->err() != Contains("its machine"));
  }
  nodes[0]->Signal(SIGCONT);
  for (const Node* node : {&nodes[1], &nodes[2]}) {
    CHECK_MESSAGE((*node)->WaitForErr("is back"), (*node)->Describe());
  }
  nodes[0]->Signal(SIGTERM);
  CHECK_MESSAGE(nodes[0]->Wait() == 128 + SIGTERM, nodes[0]->Describe());
  for (const Node* node : {&nodes[1], &nodes[2]}) {
    CHECK_MESSAGE((*node)->Wait() == 121, (*node)->Describe());
  }
}

}  // namespace
}  // namespace ddprun::testing
