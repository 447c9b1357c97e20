#include "worker_runtime/comm/plan.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace ddp::internal {
namespace {

Capabilities On(const std::string& host, Backend backend = Backend::kAuto) {
  Capabilities capabilities;
  capabilities.backend = backend;
  capabilities.host = host;
  capabilities.address = "10.0.0.1";
  return capabilities;
}

Plan Made(const std::vector<Capabilities>& ranks) {
  auto plan = MakePlan(ranks);
  REQUIRE_MESSAGE(plan.ok(), plan.status().ToString());
  return *plan;
}

TEST_CASE("plan: ranks of one host share memory") {
  const Plan plan = Made({On("a"), On("a"), On("a")});
  CHECK(plan.node_sizes == std::vector<int>{3});
  CHECK(plan.reason == "shm: all ranks share a host");
}

TEST_CASE("plan: ranks of several hosts use tcp, and the first rank elsewhere is named") {
  const Plan plan = Made({On("a"), On("a"), On("b"), On("c"), On("c"), On("c")});
  CHECK(plan.node_sizes == std::vector<int>{2, 1, 3});
  CHECK(plan.reason == "tcp between 3 nodes: rank 2 is not on rank 0's host");
}

TEST_CASE("plan: only consecutive ranks of a host make a node, since sums go in rank order") {
  CHECK(Made({On("a"), On("b"), On("a"), On("a")}).node_sizes == std::vector<int>{1, 1, 2});
}

TEST_CASE("plan: tcp that was asked for is used on one host too") {
  const Plan plan = Made({On("a", Backend::kTcp), On("a", Backend::kTcp)});
  CHECK(plan.node_sizes == std::vector<int>{1, 1});
  CHECK(plan.reason == "tcp between all ranks, as asked for");
}

TEST_CASE("plan: shm that was asked for and cannot be names the rank that is elsewhere") {
  CHECK(Made({On("a", Backend::kShm), On("a", Backend::kShm)}).node_sizes == std::vector<int>{2});
  auto plan = MakePlan({On("a", Backend::kShm), On("a", Backend::kShm), On("b", Backend::kShm)});
  CHECK(absl::IsFailedPrecondition(plan.status()));
  CHECK(plan.status().message() ==
        "backend shm needs all ranks on one host: rank 2 is not on rank 0's");
}

TEST_CASE("plan: ranks that ask for different backends are refused by name") {
  auto plan = MakePlan({On("a"), On("a"), On("a", Backend::kShm)});
  CHECK(absl::IsFailedPrecondition(plan.status()));
  CHECK(plan.status().message() ==
        "the ranks ask for different backends: rank 0 for auto, rank 2 for shm");
}

TEST_CASE("plan: capabilities come back from the store as they went") {
  for (Backend backend : {Backend::kAuto, Backend::kShm, Backend::kTcp}) {
    Capabilities capabilities = On("boot-4026531840", backend);
    capabilities.address = "fe80::1%eth0";
    for (size_t i = 0; i < capabilities.nonce.size(); ++i) {
      capabilities.nonce[i] = static_cast<uint8_t>(37 * i + 250);
    }
    auto decoded = DecodeCapabilities(Encode(capabilities));
    REQUIRE_MESSAGE(decoded.ok(), decoded.status().ToString());
    CHECK(*decoded == capabilities);
  }
}

TEST_CASE("plan: a plan comes back from the store as it went") {
  const Plan plan = Made({On("a"), On("a"), On("b")});
  auto decoded = DecodePlan(Encode(plan), 3);
  REQUIRE_MESSAGE(decoded.ok(), decoded.status().ToString());
  CHECK(*decoded == plan);
}

TEST_CASE("plan: what was not encoded by this version is refused and quoted") {
  const std::string nonce(32, 'a');
  const std::string good = "ddp2|auto|host|10.0.0.1|" + nonce + "|cpu|,,,0,,0";
  REQUIRE(DecodeCapabilities(good).ok());
  for (const std::string& text : {std::string(), std::string("ddp2"), "ddp1" + good.substr(4),
                                  "ddp2|mpi|host|10.0.0.1|" + nonce + "|cpu|,,,0,,0",
                                  "ddp2|auto|host|10.0.0.1|" + nonce.substr(1) + "|cpu|,,,0,,0",
                                  "ddp2|auto|host|10.0.0.1|" + nonce.substr(1) + "g|cpu|,,,0,,0",
                                  "ddp2|auto|host|" + nonce + "|cpu|,,,0,,0", good + "|more"}) {
    CAPTURE(text);
    auto decoded = DecodeCapabilities(text);
    CHECK(absl::IsInvalidArgument(decoded.status()));
    CHECK(decoded.status().message().find("\"" + text + "\"") != std::string::npos);
  }
  REQUIRE(DecodePlan("ddp2|2,2|000|shm", 4).ok());
  for (const std::string text :
       {"", "ddp2", "ddp2|2,2", "ddp1|2,2|000|shm", "ddp2||000|shm", "ddp2|2,|000|shm",
        "ddp2|2,0,2|000|shm", "ddp2|5,-1|000|shm", "ddp2|2,1|000|shm", "ddp2|2,3|000|shm",
        "ddp2|2,x|000|shm", "ddp2|4294967300|000|shm"}) {
    CAPTURE(text);
    auto decoded = DecodePlan(text, 4);
    CHECK(absl::IsInvalidArgument(decoded.status()));
    CHECK(decoded.status().message().find("\"" + text + "\"") != std::string::npos);
  }
}

TEST_CASE("plan: a message about garbage stays short") {
  CHECK(DecodePlan(std::string(1 << 20, 'x'), 4).status().message().size() < 300);
}

TEST_CASE("plan: every rank finds its node and its neighbours") {
  const Plan plan{{2, 1, 3}, ""};
  struct Row {
    int rank, node, index, previous_first, next_first;
    std::vector<int> ranks;
  };
  const Row rows[] = {{0, 0, 0, -1, 2, {0, 1}},    {1, 0, 1, -1, 2, {0, 1}},
                      {2, 1, 0, 0, 3, {2}},        {3, 2, 0, 2, -1, {3, 4, 5}},
                      {4, 2, 1, 2, -1, {3, 4, 5}}, {5, 2, 2, 2, -1, {3, 4, 5}}};
  for (const Row& row : rows) {
    CAPTURE(row.rank);
    const Place place = PlaceOf(plan, row.rank);
    CHECK(place.node == row.node);
    CHECK(place.node_count == 3);
    CHECK(place.index == row.index);
    CHECK(place.ranks == row.ranks);
    CHECK(place.previous_first == row.previous_first);
    CHECK(place.next_first == row.next_first);
    CHECK(place.lanes == 1);
  }
}

TEST_CASE("plan: the smallest node says how many lanes there are, up to eight") {
  CHECK(PlaceOf({{4, 2, 3}, ""}, 0).lanes == 2);
  CHECK(PlaceOf({{16, 9}, ""}, 0).lanes == 8);
  CHECK(PlaceOf({{4}, ""}, 3).node_count == 1);
}

// A rank that can train on a GPU of its own: `gpu` is its number.
Capabilities WithGpu(int gpu, DeviceChoice device = DeviceChoice::kAuto,
                     Backend backend = Backend::kAuto) {
  Capabilities capabilities = On("a", backend);
  capabilities.device = device;
  capabilities.gpu = {.lack = "",
                      .uuid = "GPU-a" + std::to_string(gpu),
                      .host_id = "",
                      .nccl_version = 22807,
                      .nccl_lack = "",
                      .can_register = true};
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
    CHECK(plan.can_register == (row.says == gpus));
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
          "device cuda: rank 1: no \"lib\" here");
    const Plan plan = Made(without(DeviceChoice::kAuto, Backend::kAuto, is_nccl));
    CHECK(plan.reason == "shm: all ranks share a host; no GPUs (rank 1: no \"lib\" here)");
    CHECK_FALSE(plan.is_on_gpus);
    CHECK_FALSE(plan.uses_nccl);
    CHECK_FALSE(plan.can_register);
  }
}

TEST_CASE("plan: ranks with the same GPU are named, unless NCCL takes them for other hosts") {
  std::vector<Capabilities> ranks = {WithGpu(0, DeviceChoice::kCuda),
                                     WithGpu(7, DeviceChoice::kCuda),
                                     WithGpu(0, DeviceChoice::kCuda)};
  CHECK(Refusal(ranks).find("device cuda: ranks 0 and 2 have the same GPU (GPU-a0): ") == 0);
  ranks[0].gpu.host_id = ranks[2].gpu.host_id = "one";
  CHECK(Refusal(ranks).find("ranks 0 and 2 have the same GPU") != std::string::npos);
  ranks[0].gpu.host_id = "";
  ranks[2].gpu.host_id = "";
  for (Capabilities& rank : ranks) rank.device = DeviceChoice::kAuto;
  CHECK(Made(ranks).reason.find("shm: all ranks share a host; no GPUs (ranks 0 and 2 have") == 0);
  ranks[0].gpu.host_id = "one";
  ranks[2].gpu.host_id = "two";
  CHECK(Made(ranks).is_on_gpus);
  // A third that plays one of the two hosts again.
  ranks.push_back(ranks[0]);
  CHECK(Made(ranks).reason.find("ranks 0 and 3 have the same GPU") != std::string::npos);
}

TEST_CASE("plan: a group of one needs no NCCL unless it was asked for") {
  Capabilities alone = WithGpu(0, DeviceChoice::kCuda);
  CHECK(Made({alone}).uses_nccl == false);
  alone.gpu.nccl_version = 0;
  alone.gpu.nccl_lack = "no libnccl";
  const Plan plan = Made({alone});
  CHECK(plan.is_on_gpus);
  CHECK_FALSE(plan.can_register);
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
  CHECK_FALSE(plan.can_register);
  CHECK(plan.reason ==
        "cuda, nccl 2.18.3: each of 3 ranks has a GPU of its own; gradients in plain memory, as "
        "rank 1's NCCL cannot register it (2.19 can)");
  // A newer one need not have it: a build may lack the functions.
  for (int i = 0; i < 3; ++i) ranks[i] = WithGpu(i);
  ranks[2].gpu.can_register = false;
  plan = Made(ranks);
  CHECK_FALSE(plan.can_register);
  CHECK(plan.reason.find("as rank 2's NCCL cannot register it") != std::string::npos);
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
    capabilities.gpu.lack = capabilities.gpu.uuid = odd;
    capabilities.gpu.host_id = capabilities.gpu.nccl_lack = odd;
    const auto decoded = DecodeCapabilities(Encode(capabilities));
    REQUIRE_MESSAGE(decoded.ok(), decoded.status().ToString());
    CHECK(*decoded == capabilities);
  }
  for (const bool flag : {false, true}) {
    Plan plan{{1, 1}, odd};
    (flag ? plan.is_on_gpus : plan.uses_nccl) = true;
    plan.can_register = flag;
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
       {head, head + "|", head + "|,,,,", head + "|,,,x,,1", head + "|,,,1,,1,", good + "|",
        devices + "|tpu|" + gpu, devices + "|" + gpu}) {
    CAPTURE(text);
    CHECK(absl::IsInvalidArgument(DecodeCapabilities(text).status()));
  }
  const std::string plan = Encode(Plan{{2}, "shm"});
  REQUIRE(DecodePlan(plan, 2).ok());
  const std::string version = plan.substr(0, plan.find('|'));
  for (const char* rest : {"|2|00|shm", "|2|0000|shm", "|2||shm", "|2|000"}) {
    CAPTURE(rest);
    CHECK(absl::IsInvalidArgument(DecodePlan(version + rest, 2).status()));
  }
}

}  // namespace
}  // namespace ddp::internal
