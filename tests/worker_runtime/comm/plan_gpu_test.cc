// What the plan makes of the ranks' GPUs.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/contains.h"
#include "worker_runtime/comm/plan.h"
#include "worker_runtime/gpu/nccl_version.h"

namespace ddp::internal {
namespace {

Plan Made(const std::vector<Capabilities>& ranks) {
  auto plan = MakePlan(ranks);
  REQUIRE_MESSAGE(plan.ok(), plan.status().ToString());
  return *plan;
}

// A rank that can train on a GPU of its own: `gpu` is its number.
Capabilities WithGpu(int gpu, DeviceChoice device = DeviceChoice::kAuto,
                     Backend backend = Backend::kAuto) {
  Capabilities capabilities;
  capabilities.backend = backend;
  capabilities.host = "a";
  capabilities.address = "10.0.0.1";
  capabilities.device = device;
  capabilities.gpu = {.lack = "",
                      .uuid = "GPU-a" + std::to_string(gpu),
                      .bus_id = "0000:1" + std::to_string(gpu) + ":00.0",
                      .host_id = "",
                      .nccl_version = 22807,
                      .nccl_lack = "",
                      .can_register = true,
                      .wants_registered = true};
  return capabilities;
}

std::vector<Capabilities> TwoWithGpus(DeviceChoice device, Backend backend = Backend::kAuto) {
  return {WithGpu(0, device, backend), WithGpu(1, device, backend)};
}

std::string Refusal(const std::vector<Capabilities>& ranks) {
  const auto plan = MakePlan(ranks);
  CHECK(absl::IsFailedPrecondition(plan.status()));
  return std::string(plan.status().message());
}

TEST_CASE("plan: which device and backend are taken where every rank has a GPU of its own") {
  const std::string gpus = "cuda, nccl 2.28.7: each of 2 ranks has a GPU of its own";
  const std::string shm = "shm: all ranks share a host";
  const std::string tcp = "tcp between all ranks, as asked for";
  const std::string does_not_go = ": nccl is for cuda, shm and tcp are for cpu";
  struct Row {
    DeviceChoice device;
    Backend backend;
    std::string says;
  };
  using enum DeviceChoice;
  const Row good[] = {
      {kAuto, Backend::kAuto, gpus}, {kAuto, Backend::kNccl, gpus}, {kAuto, Backend::kShm, shm},
      {kAuto, Backend::kTcp, tcp},   {kCuda, Backend::kAuto, gpus}, {kCuda, Backend::kNccl, gpus},
      {kCpu, Backend::kAuto, shm},   {kCpu, Backend::kShm, shm},    {kCpu, Backend::kTcp, tcp}};
  for (const Row& row : good) {
    const Plan plan = Made(TwoWithGpus(row.device, row.backend));
    CHECK(plan.reason == row.says);
    CHECK(plan.is_on_gpus == (row.says == gpus));
    CHECK(plan.uses_nccl == (row.says == gpus));
    CHECK(plan.registers_memory == (row.says == gpus));
  }
  const Row bad[] = {
      {kCuda, Backend::kShm, "backend shm does not go with device cuda" + does_not_go},
      {kCuda, Backend::kTcp, "backend tcp does not go with device cuda" + does_not_go},
      {kCpu, Backend::kNccl, "backend nccl does not go with device cpu" + does_not_go}};
  for (const Row& row : bad) CHECK(Refusal(TwoWithGpus(row.device, row.backend)) == row.says);
}

TEST_CASE("plan: nodes are those of host memory whatever the device") {
  std::vector<Capabilities> ranks = {WithGpu(0), WithGpu(1), WithGpu(2)};
  ranks[2].host = "b";
  const Plan plan = Made(ranks);
  CHECK(plan.node_sizes == std::vector<int>{2, 1});
  CHECK(plan.is_on_gpus);
}

TEST_CASE("plan: the first rank that lacks a GPU or NCCL is named with what it lacks") {
  const auto without = [](DeviceChoice device, Backend backend, bool is_nccl) {
    std::vector<Capabilities> ranks = {WithGpu(0, device, backend), WithGpu(1, device, backend),
                                       WithGpu(2, device, backend)};
    for (size_t rank : {1, 2}) {
      (is_nccl ? ranks[rank].gpu.nccl_lack : ranks[rank].gpu.lack) = "no \"lib\" here";
      if (is_nccl) ranks[rank].gpu.nccl_version = 0;
    }
    return ranks;
  };
  for (const bool is_nccl : {false, true}) {
    CAPTURE(is_nccl);
    CHECK(Refusal(without(DeviceChoice::kCuda, Backend::kAuto, is_nccl)) ==
          "device cuda: rank 1: no \"lib\" here");
    CHECK(Refusal(without(DeviceChoice::kAuto, Backend::kNccl, is_nccl)) ==
          "backend nccl: rank 1: no \"lib\" here");
    const Plan plan = Made(without(DeviceChoice::kAuto, Backend::kAuto, is_nccl));
    CHECK(plan.reason == "shm: all ranks share a host; no GPUs (rank 1: no \"lib\" here)");
    CHECK_FALSE(plan.is_on_gpus);
    CHECK_FALSE(plan.uses_nccl);
    CHECK_FALSE(plan.registers_memory);
  }
}

TEST_CASE("plan: ranks with the same GPU are named, unless NCCL takes them for other hosts") {
  std::vector<Capabilities> ranks = {WithGpu(0, DeviceChoice::kCuda),
                                     WithGpu(7, DeviceChoice::kCuda),
                                     WithGpu(0, DeviceChoice::kCuda)};
  CHECK(Refusal(ranks).find("device cuda: ranks 0 and 2 have the same GPU (GPU-a0): ") == 0);
  ranks[0].gpu.host_id = ranks[2].gpu.host_id = "one";
  CHECK(Refusal(ranks) == Contains("ranks 0 and 2 have the same GPU"));
  ranks[0].gpu.host_id = "";
  ranks[2].gpu.host_id = "";
  for (Capabilities& rank : ranks) rank.device = DeviceChoice::kAuto;
  CHECK(Made(ranks).reason.find("shm: all ranks share a host; no GPUs (ranks 0 and 2 have") == 0);
  ranks[0].gpu.host_id = "one";
  ranks[2].gpu.host_id = "two";
  CHECK(Made(ranks).is_on_gpus);
  // A third that plays one of the two hosts again.
  ranks.push_back(ranks[0]);
  CHECK(Made(ranks).reason == Contains("ranks 0 and 3 have the same GPU"));
}

// Slice `index` of the first GPU, by a rank with that NCCL.
Capabilities WithSlice(int index, int nccl_version, bool may_share,
                       DeviceChoice device = DeviceChoice::kAuto) {
  Capabilities capabilities = WithGpu(0, device);
  capabilities.gpu.uuid = "MIG-b" + std::to_string(index);
  capabilities.gpu.nccl_version = nccl_version;
  capabilities.gpu.may_share = may_share;
  return capabilities;
}

TEST_CASE("plan: slices of one GPU are refused before NCCL 2.30.3, whatever the ranks set") {
  for (const bool may_share : {false, true}) {
    for (const int version : {22807, 22907, 23002}) {
      const std::vector<Capabilities> ranks = {WithSlice(0, version, may_share),
                                               WithSlice(1, version, may_share)};
      CHECK(Made(ranks).reason.find("shm: all ranks share a host; no GPUs (ranks 0 and 1 have "
                                    "slices (MIG) of one GPU (0000:10:00.0), which NCCL 2.") == 0);
      CHECK_FALSE(Made(ranks).is_on_gpus);
    }
  }
  CHECK(Refusal({WithSlice(0, 22907, false, DeviceChoice::kCuda),
                 WithSlice(1, 22907, false, DeviceChoice::kCuda)}) ==
        "device cuda: ranks 0 and 1 have slices (MIG) of one GPU (0000:10:00.0), which NCCL 2.29.7 "
        "takes for the same: start one rank per physical GPU, or use NCCL 2.30.3 or newer with "
        "NCCL_MULTI_RANK_GPU_ENABLE=1 on every rank");
}

TEST_CASE("plan: slices of one GPU form a group from NCCL 2.30.3 on where every rank asks for it") {
  for (const int version : {23003, 23007, 23102}) {
    std::vector<Capabilities> ranks = {WithSlice(0, version, true), WithSlice(1, version, true),
                                       WithGpu(1)};
    ranks[2].gpu.nccl_version = version;
    CHECK(Made(ranks).reason == Contains("(0000:10:00.0)"));
    ranks[2].gpu.may_share = true;
    CHECK(Made(ranks).is_on_gpus);
    CHECK(Made(ranks).reason == "cuda, nccl " + NcclVersionText(version) +
                                    ": each of 3 ranks has a GPU or shares one "
                                    "(NCCL_MULTI_RANK_GPU_ENABLE)");
  }
  std::vector<Capabilities> ranks = {WithSlice(0, 23007, true, DeviceChoice::kCuda),
                                     WithSlice(1, 23007, false, DeviceChoice::kCuda)};
  CHECK(Refusal(ranks) ==
        "device cuda: ranks 0 and 1 have slices (MIG) of one GPU (0000:10:00.0), which NCCL 2.30.7 "
        "allows only with NCCL_MULTI_RANK_GPU_ENABLE=1 on every rank, and rank 1 does not set it: "
        "set it, or start one rank per physical GPU");
}

TEST_CASE("plan: slices of GPUs on other buses, hosts or with other host ids are apart") {
  std::vector<Capabilities> ranks = {WithSlice(0, 22807, false), WithSlice(1, 22807, false)};
  const std::string apart = "cuda, nccl 2.28.7: each of 2 ranks has a GPU of its own";
  ranks[1].gpu.bus_id = "0000:11:00.0";
  CHECK(Made(ranks).reason == apart);
  ranks[1].gpu.bus_id = ranks[0].gpu.bus_id;
  ranks[1].host = "b";
  CHECK(Made(ranks).reason == apart);
  ranks[1].host = ranks[0].host;
  ranks[0].gpu.host_id = "one";
  ranks[1].gpu.host_id = "two";
  CHECK(Made(ranks).reason == apart);
  // Where the driver does not say the bus, NCCL may know better.
  ranks[0].gpu.host_id = ranks[1].gpu.host_id = "";
  CHECK_FALSE(Made(ranks).is_on_gpus);
  ranks[0].gpu.bus_id = ranks[1].gpu.bus_id = "";
  CHECK(Made(ranks).reason == apart);
}

TEST_CASE("plan: ranks share a whole GPU from NCCL 2.30.3 on where every rank asks for it") {
  std::vector<Capabilities> ranks = {WithGpu(0), WithGpu(0)};
  for (Capabilities& rank : ranks) rank.gpu.may_share = true;
  CHECK_FALSE(Made(ranks).is_on_gpus);
  for (Capabilities& rank : ranks) rank.gpu.nccl_version = 23003;
  CHECK(Made(ranks).reason ==
        "cuda, nccl 2.30.3: each of 2 ranks has a GPU or shares one (NCCL_MULTI_RANK_GPU_ENABLE)");
  ranks[1].gpu.may_share = false;
  CHECK(Made(ranks).reason == Contains("no GPUs (ranks 0 and 1 have the same GPU (GPU-a0): "));
}

TEST_CASE("plan: a group of one needs no NCCL unless it was asked for") {
  Capabilities alone = WithGpu(0, DeviceChoice::kCuda);
  CHECK(Made({alone}).uses_nccl == false);
  alone.gpu.nccl_version = 0;
  alone.gpu.nccl_lack = "no libnccl";
  const Plan plan = Made({alone});
  CHECK(plan.is_on_gpus);
  CHECK_FALSE(plan.registers_memory);
  CHECK(plan.reason == "cuda: a group of one");
  alone.backend = Backend::kNccl;
  CHECK(Refusal({alone}) == "device cuda: rank 0: no libnccl");
  alone.gpu.nccl_version = 22903;
  CHECK(Made({alone}).uses_nccl);
  CHECK(Made({alone}).reason == "cuda, nccl 2.29.3: rank 0 has a GPU");
  alone = WithGpu(0, DeviceChoice::kAuto);
  alone.gpu.lack = "no driver";
  CHECK(Made({alone}).reason == "local: a group of one; no GPUs (rank 0: no driver)");
}

TEST_CASE("plan: a rank that cannot register memory keeps all from it, and is named") {
  std::vector<Capabilities> ranks = {WithGpu(0), WithGpu(1), WithGpu(2)};
  for (Capabilities& rank : ranks) rank.gpu.nccl_version = 21803;
  ranks[1].gpu.can_register = false;
  Plan plan = Made(ranks);
  CHECK(plan.uses_nccl);
  CHECK_FALSE(plan.registers_memory);
  CHECK(plan.reason ==
        "cuda, nccl 2.18.3: each of 3 ranks has a GPU of its own; gradients in plain memory, as "
        "rank 1's NCCL cannot register it (2.19 can)");
  // A newer one need not have it: a build may lack the functions.
  for (int i = 0; i < 3; ++i) ranks[i] = WithGpu(i);
  ranks[2].gpu.can_register = false;
  plan = Made(ranks);
  CHECK_FALSE(plan.registers_memory);
  CHECK(plan.reason == Contains("as rank 2's NCCL cannot register it"));
  // Some ask for it, and some do not; nobody does.
  for (int i = 0; i < 3; ++i) ranks[i] = WithGpu(i);
  ranks[1].gpu.wants_registered = false;
  plan = Made(ranks);
  CHECK_FALSE(plan.registers_memory);
  CHECK(plan.reason ==
        Contains("as rank 1 does not ask for registered memory (TORCH_NCCL_USE_TENSOR_"));
  for (Capabilities& rank : ranks) rank.gpu.wants_registered = false;
  plan = Made(ranks);
  CHECK_FALSE(plan.registers_memory);
  CHECK(plan.reason == "cuda, nccl 2.28.7: each of 3 ranks has a GPU of its own");
}

TEST_CASE("plan: ranks with different versions of NCCL form no group on GPUs") {
  std::vector<Capabilities> ranks = {WithGpu(0), WithGpu(1)};
  ranks[1].gpu.nccl_version = 22707;
  const std::string words =
      "rank 0 has NCCL 2.28.7, rank 1 has 2.27.7: NCCL forms groups of one version only";
  CHECK(Made(ranks).reason == "shm: all ranks share a host; no GPUs (" + words + ")");
  for (Capabilities& rank : ranks) rank.device = DeviceChoice::kCuda;
  CHECK(Refusal(ranks) == "device cuda: " + words);
}

TEST_CASE("plan: NCCL encrypts by the key of the round where every rank's can") {
  std::vector<Capabilities> ranks = {WithGpu(0), WithGpu(1)};
  CHECK_FALSE(Made(ranks).encrypts_nccl);
  CHECK(Made(ranks).reason != Contains("encrypt"));
  for (Capabilities& rank : ranks) rank.has_key = true;
  CHECK_FALSE(Made(ranks).encrypts_nccl);
  const std::string words = "cuda, nccl 2.28.7: each of 2 ranks has a GPU of its own; what NCCL ";
  CHECK(Made(ranks).reason == words + "sends is not encrypted");
  for (Capabilities& rank : ranks) rank.gpu.can_encrypt = true;
  CHECK(Made(ranks).encrypts_nccl);
  CHECK(Made(ranks).reason == words + "sends over TCP is encrypted");
}

TEST_CASE("plan: ranks of which one's NCCL cannot encrypt as the others' form no group on GPUs") {
  std::vector<Capabilities> ranks = {WithGpu(0), WithGpu(1), WithGpu(2)};
  for (Capabilities& rank : ranks) {
    rank.has_key = true;
    rank.device = DeviceChoice::kCuda;
    rank.gpu.nccl_version = 23203;
  }
  const std::string words = " was built without it: use one build of NCCL everywhere";
  ranks[2].gpu.can_encrypt = true;
  CHECK(Refusal(ranks) ==
        "device cuda: rank 2's NCCL 2.32.3 was built with TLS and encrypts by the "
        "key of the round, rank 0's" +
            words);
  ranks[0].gpu.can_encrypt = true;
  CHECK(Refusal(ranks) ==
        "device cuda: rank 0's NCCL 2.32.3 was built with TLS and encrypts by the "
        "key of the round, rank 1's" +
            words);
}

TEST_CASE("plan: the ranks compare their calls where one of them asks for it") {
  std::vector<Capabilities> ranks = {WithGpu(0), WithGpu(1)};
  CHECK_FALSE(Made(ranks).compares_calls);
  ranks[1].debug_level = ddp::DebugLevel::kDetail;
  CHECK(Made(ranks).compares_calls);
}

TEST_CASE("plan: ranks that ask for different devices are refused by name") {
  CHECK(Refusal({WithGpu(0), WithGpu(1), WithGpu(2, DeviceChoice::kCuda)}) ==
        "the ranks ask for different devices: rank 0 for auto, rank 2 for cuda");
  CHECK(Refusal({WithGpu(0, DeviceChoice::kCpu), WithGpu(1)}) ==
        "the ranks ask for different devices: rank 0 for cpu, rank 1 for auto");
}

TEST_CASE("plan: what a rank says of its GPU comes back whatever characters it holds") {
  const std::string odd = std::string("a|b,c\"\n\\ \xc3\xa9") + '\0' + "end";
  for (const DeviceChoice device : {DeviceChoice::kCpu, DeviceChoice::kCuda, DeviceChoice::kAuto}) {
    Capabilities capabilities = WithGpu(3, device, Backend::kNccl);
    capabilities.gpu.lack = capabilities.gpu.uuid = capabilities.gpu.bus_id = odd;
    capabilities.gpu.host_id = capabilities.gpu.nccl_lack = odd;
    capabilities.gpu.may_share = device == DeviceChoice::kCuda;
    capabilities.gpu.can_encrypt = device == DeviceChoice::kCpu;
    if (device == DeviceChoice::kCuda) capabilities.debug_level = ddp::DebugLevel::kDetail;
    const auto decoded = DecodeCapabilities(Encode(capabilities));
    REQUIRE_MESSAGE(decoded.ok(), decoded.status().ToString());
    CHECK(*decoded == capabilities);
  }
  for (const bool flag : {false, true}) {
    Plan plan{{1, 1}, odd};
    (flag ? plan.is_on_gpus : plan.uses_nccl) = true;
    plan.registers_memory = flag;
    plan.compares_calls = !flag;
    plan.encrypts_nccl = flag;
    const auto decoded = DecodePlan(Encode(plan), 2);
    REQUIRE_MESSAGE(decoded.ok(), decoded.status().ToString());
    CHECK(*decoded == plan);
  }
}

TEST_CASE("plan: capabilities with a broken part about the GPU are refused") {
  const std::string good = Encode(WithGpu(0));
  REQUIRE(DecodeCapabilities(good).ok());
  const std::string head = good.substr(0, good.rfind('|'));
  const std::string devices = head.substr(0, head.rfind('|'));
  const std::string gpu = good.substr(good.rfind('|') + 1);
  for (const std::string& text :
       {head, head + "|", head + "|,,,,,,", head + "|,,,,0,x,,1,1,0", head + "|,,,,0,1,,1,1",
        head + "|,,,,0,1,,1,1,0,", good + "|", devices + "|tpu|" + gpu, devices + "|" + gpu}) {
    CAPTURE(text);
    CHECK(absl::IsInvalidArgument(DecodeCapabilities(text).status()));
  }
  const std::string plan = Encode(Plan{{2}, "shm"});
  REQUIRE(DecodePlan(plan, 2).ok());
  const std::string version = plan.substr(0, plan.find('|'));
  for (const char* rest : {"|2|0000|shm", "|2|000000|shm", "|2||shm", "|2|00000"}) {
    CAPTURE(rest);
    CHECK(absl::IsInvalidArgument(DecodePlan(version + rest, 2).status()));
  }
}

}  // namespace
}  // namespace ddp::internal
