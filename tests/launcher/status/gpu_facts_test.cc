#include "launcher/status/gpu_facts.h"

#include <doctest/doctest.h>

#include "launcher/status/gpu_words.h"

namespace ddprun::launcher {
namespace {

GpuReading TwoGpus() {
  GpuReading reading;
  reading.gpus.resize(2);
  reading.gpus[0].view = {.index = 0, .utilisation = 0.9};
  reading.gpus[0].uses = {{.pid = 10, .memory = 100}, {.pid = 11, .memory = 50}};
  reading.gpus[1].view = {.index = 1, .name = "A100", .utilisation = 0.5};
  reading.gpus[1].uses = {{.pid = 10, .memory = 30}, {.pid = 20}};
  return reading;
}

TEST_CASE("gpu words: why clocks are low, and what is no reason") {
  CHECK(ThrottleText(0) == "");
  CHECK(ThrottleText(0x1 | 0x2 | 0x100) == "");
  CHECK(ThrottleText(0x4) == "software power cap");
  CHECK(ThrottleText(0x8) == "hardware slowdown");
  CHECK(ThrottleText(0x8 | 0x20) == "hardware slowdown, software thermal slowdown");
  CHECK(ThrottleText(0x8 | 0x40 | 0x80) == "hardware thermal slowdown, hardware power brake");
  CHECK(ThrottleText(0x10) == "sync boost with other GPUs");
  CHECK_FALSE(IsThrottleProblem(0x4 | 0x10 | 0x1));
  for (const uint64_t reason : {0x8, 0x20, 0x40, 0x80}) CHECK(IsThrottleProblem(reason));
}

TEST_CASE("gpu words: the well-known XIDs have a meaning") {
  for (const int xid : {13, 31, 43, 45, 48, 63, 64, 74, 79, 92, 94, 95, 119, 120, 122}) {
    CAPTURE(xid);
    CHECK(XidMeaning(xid) != "");
  }
  CHECK(XidMeaning(999) == "");
  CHECK_FALSE(IsXidProblem(45));
  CHECK(IsXidProblem(79));
}

TEST_CASE("gpu facts: a rank has the GPUs that its processes use") {
  RankView rank;
  FillRank(TwoGpus(), {11, 12}, rank);
  CHECK(rank.gpu == 0.9);
  CHECK(rank.gpu_memory == 50);
  FillRank(TwoGpus(), {10}, rank);
  CHECK(rank.gpu == doctest::Approx(0.7));
  CHECK(rank.gpu_memory == 130);
  RankView other;
  FillRank(TwoGpus(), {20}, other);
  CHECK(other.gpu == 0.5);
  CHECK_FALSE(other.gpu_memory);
  RankView none;
  FillRank(TwoGpus(), {30}, none);
  CHECK(none == RankView{});
}

TEST_CASE("gpu facts: a node has them all") {
  NodeView node;
  FillNode(TwoGpus(), node);
  REQUIRE(node.gpus.size() == 2);
  CHECK(node.gpus[1].name == "A100");
  FillNode({}, node);
  CHECK(node.gpus.empty());
}

TEST_CASE("gpu facts: problems name the GPU and its ranks") {
  GpuReading reading = TwoGpus();
  CHECK(GpuProblems(reading).empty());
  reading.gpus[0].view.xids = {45, 9999};
  reading.gpus[1].view.throttle = "hardware thermal slowdown";
  reading.gpus[1].view.temperature = 91;
  reading.gpus[1].throttle_reasons = kHardwareThermal | kHardwareSlowdown;
  const std::vector<Problem> problems = GpuProblems(reading, {{10, 4}, {20, 2}, {11, 4}});
  REQUIRE(problems.size() == 2);
  CHECK(problems[0] == Problem{.kind = "gpu", .text = "GPU 0 reported XID 9999", .ranks = {4}});
  CHECK(
      problems[1] ==
      Problem{.kind = "throttling",
              .text = "GPU 1 (A100) runs slower than it could: hardware thermal slowdown at 91 °C",
              .ranks = {2, 4}});
}

TEST_CASE("gpu facts: a driver that does not answer is a problem of the node") {
  const std::vector<Problem> problems = GpuProblems({.hang_s = 31.4});
  REQUIRE(problems.size() == 1);
  CHECK(problems[0] == Problem{.kind = "gpu",
                               .text = "NVIDIA's driver has not answered for 31 s: it, or a GPU, "
                                       "hangs",
                               .since_s = 31.4});
}

}  // namespace
}  // namespace ddprun::launcher
