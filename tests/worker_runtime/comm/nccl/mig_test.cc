// Slices (MIG) of one GPU as the GPUs of a group's ranks, on the double of CUDA and NCCL.
#include <doctest/doctest.h>

#include "tests/support/contains.h"
#include "tests/worker_runtime/comm/nccl/graph_training.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;
using ddp::DeviceChoice;
using Env = std::map<std::string, std::string>;

// What rank 0 of two says of its group, which adds up once. Each rank sees one slice, as CUDA has
// it; with 2 slices to a GPU, `second` MIG-a1 is the other of rank 0's and MIG-a2 is another GPU's.
std::string Describe(DeviceChoice device, const std::string& second, Env env) {
  env["DDPRUN_DOUBLE_MIG"] = "2";
  const auto slice_of = [&second](int rank) {
    return Env{{"CUDA_VISIBLE_DEVICES", rank == 0 ? "MIG-a0" : second}};
  };
  RankProcesses ranks({.world_size = 2, .env = DoubleEnv(std::move(env)), .env_of_rank = slice_of},
                      [device](int) {
                        auto group = ddp::ProcessGroup::FromEnv({.timeout = 60s, .device = device});
                        if (!group.ok()) {
                          RankProcesses::Say(std::string(group.status().message()));
                          return 0;
                        }
                        EXPECT((*group)->communicator().Barrier()->Wait().ok());
                        RankProcesses::Say((*group)->description());
                        EXPECT((*group)->Shutdown().ok());
                        return 0;
                      });
  const std::string words = ranks.Hear(0);
  CHECK(ranks.Hear(1) == words);
  CHECK(ranks.Await(0) == 0);
  CHECK(ranks.Await(1) == 0);
  return words;
}

const std::string kSlices =
    "ranks 0 and 1 have slices (MIG) of one GPU (0000:10:00.0), which NCCL ";

TEST_CASE("mig: with an NCCL that refuses slices of one GPU, a group takes host memory") {
  const std::string auto_words = Describe(DeviceChoice::kAuto, "MIG-a1", {});
  CHECK(auto_words ==
        Contains("shm: all ranks share a host; no GPUs (" + kSlices + "2.28.7 takes for"));
  const std::string cuda_words = Describe(DeviceChoice::kCuda, "MIG-a1", {});
  CHECK(cuda_words == Contains("device cuda: " + kSlices + "2.28.7 takes for the same: "));
  CHECK(Describe(DeviceChoice::kAuto, "MIG-a1", {{"DDPRUN_DOUBLE_NCCL_VERSION", "23007"}}) ==
        Contains(kSlices +
                 "2.30.7 allows only with NCCL_MULTI_RANK_GPU_ENABLE=1 on every rank, and "
                 "rank 0 does not set it: "));
}

TEST_CASE("mig: where NCCL lets ranks share a GPU, slices of one form a group") {
  const Env env = {{"DDPRUN_DOUBLE_NCCL_VERSION", "23007"}, {"NCCL_MULTI_RANK_GPU_ENABLE", "1"}};
  CHECK(Describe(DeviceChoice::kAuto, "MIG-a1", env) ==
        "cuda, nccl 2.30.7: each of 2 ranks has a GPU or shares one (NCCL_MULTI_RANK_GPU_ENABLE)");
}

TEST_CASE("mig: slices of two GPUs form a group with any NCCL") {
  CHECK(Describe(DeviceChoice::kCuda, "MIG-a2", {}) ==
        "cuda, nccl 2.28.7: each of 2 ranks has a GPU of its own");
}

}  // namespace
}  // namespace ddprun::testing
