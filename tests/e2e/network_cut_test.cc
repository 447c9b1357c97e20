// A cable is pulled while a job runs: bytes vanish, and nobody is told that a connection has ended.
#include <doctest/doctest.h>

#include "tests/e2e/job.h"
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
      "--nnodes=2",
      "--nproc_per_node=1",
      "--max_restarts=1",
      "--rdzv_id=cut",
      "--rdzv_backend=c10d",
      "--rdzv_endpoint=" + hosts->Address(1) + ":29400",
      "--rdzv_conf=keep_alive_interval=1,keep_alive_max_attempt=2"};
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
  // The side that is cut off keeps its worker: it has heard of no newer round.
  CHECK_MESSAGE(job.PidOfRank(1) == old_1, b->Describe());

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

}  // namespace
}  // namespace ddprun::testing
