// Reduce, gather, scatter, all-to-all and send-receive with every type, over every backend and
// layout: against plain expectations, and against what torch.distributed makes of the same data.
#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/rank_threads.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/support/torch_python.h"
#include "tests/worker_runtime/comm/elements.h"

namespace ddp::testing {
namespace {

using ddprun::testing::RankThreadsOptions;
using ddprun::testing::RunRankThreads;

// Nothing; one; odd; several chunks of staging with the rest odd.
constexpr size_t kCounts[] = {0, 1, 1001, 300'007};

void CheckOk(const absl::Status& status) {
  INFO(status.ToString());
  CHECK(status.ok());
}

// Part `part` of `rank`'s input of parts of `count` elements.
std::string Part(DType dtype, int rank, int part, size_t count) {
  return Inputs(dtype, rank, static_cast<size_t>(part) * count, count);
}

std::string Parts(DType dtype, int rank, int parts, size_t count) {
  return Inputs(dtype, rank, 0, static_cast<size_t>(parts) * count);
}

void CheckReduce(Communicator& group, DType dtype, ReduceOp op, size_t count) {
  const int root = group.world_size() - 1;
  const bool is_root = group.rank() == root;
  const std::string expected = Reduced(dtype, op, group.world_size(), 0, count);
  std::string input = Inputs(dtype, group.rank(), 0, count);
  std::string output(is_root ? input.size() : 0, '\0');
  CheckOk(group.Reduce(input.data(), is_root ? output.data() : nullptr, count, dtype, op, root)
              ->Wait());
  if (is_root) CHECK(output == expected);
  CHECK(input == Inputs(dtype, group.rank(), 0, count));
  CheckOk(group.Reduce(input.data(), input.data(), count, dtype, op, root)->Wait());
  CHECK(input == (is_root ? expected : Inputs(dtype, group.rank(), 0, count)));
}

void CheckGather(Communicator& group, DType dtype, size_t count, int root) {
  const size_t bytes = count * SizeOf(dtype), ranks = static_cast<size_t>(group.world_size());
  const bool is_root = group.rank() == root;
  std::string expected;
  for (int rank = 0; rank < group.world_size(); ++rank) expected += Part(dtype, rank, 0, count);
  const std::string input = Part(dtype, group.rank(), 0, count);
  std::string output(is_root ? ranks * bytes : 0, '\0');
  void* to = is_root ? output.data() : nullptr;
  CheckOk(group.Gather(input.data(), to, count, dtype, root)->Wait());
  if (is_root) CHECK(output == expected);
  // In place on the root.
  std::string both(ranks * bytes, '\0');
  char* mine = both.data() + static_cast<size_t>(group.rank()) * bytes;
  std::memcpy(mine, input.data(), bytes);
  CheckOk(group.Gather(mine, both.data(), count, dtype, root)->Wait());
  if (is_root) CHECK(both == expected);
}

void CheckScatter(Communicator& group, DType dtype, size_t count, int root) {
  const size_t bytes = count * SizeOf(dtype);
  const bool is_root = group.rank() == root;
  std::string input = is_root ? Parts(dtype, root, group.world_size(), count) : "";
  std::string output(bytes, '\0');
  CheckOk(
      group.Scatter(is_root ? input.data() : nullptr, output.data(), count, dtype, root)->Wait());
  CHECK(output == Part(dtype, root, group.rank(), count));
  // In place on the root.
  std::string again(bytes, '\0');
  char* to = is_root ? input.data() + static_cast<size_t>(root) * bytes : again.data();
  CheckOk(group.Scatter(input.data(), to, count, dtype, root)->Wait());
  CHECK(std::string(to, bytes) == Part(dtype, root, group.rank(), count));
  if (is_root) CHECK(input == Parts(dtype, root, group.world_size(), count));
}

void CheckAllToAll(Communicator& group, DType dtype, size_t count) {
  const std::string input = Parts(dtype, group.rank(), group.world_size(), count);
  std::string output(input.size(), '\0'), expected;
  for (int from = 0; from < group.world_size(); ++from) {
    expected += Part(dtype, from, group.rank(), count);
  }
  CheckOk(group.AllToAll(input.data(), output.data(), count, dtype)->Wait());
  CHECK(output == expected);
}

// Everybody to the rank `shift` further on; a chain without its ends; the last two apart from the
// others, with other counts and types.
void CheckSendReceive(Communicator& group, DType dtype, size_t count) {
  const int rank = group.rank(), size = group.world_size();
  const std::string input = Inputs(dtype, rank, 3, count);
  for (int shift : {0, 1, size - 1, size / 2}) {
    CAPTURE(shift);
    const int from = (rank + size - shift) % size;
    std::string output(input.size(), '\0');
    CheckOk(
        group.SendReceive(input.data(), (rank + shift) % size, output.data(), from, count, dtype)
            ->Wait());
    CHECK(output == Inputs(dtype, from, 3, count));
  }
  std::string output(input.size(), '\0');
  CheckOk(group
              .SendReceive(input.data(), rank + 1 < size ? rank + 1 : -1, output.data(), rank - 1,
                           count, dtype)
              ->Wait());
  CHECK(output ==
        (rank > 0 ? Inputs(dtype, rank - 1, 3, count) : std::string(output.size(), '\0')));
  if (size < 2) return;
  const bool is_one = rank == size - 1, is_other = rank == 0;
  double value = is_one ? 4.5 : 0;
  const size_t values = is_one || is_other ? 1 : 2 * count;
  CheckOk(group
              .SendReceive(&value, is_one ? 0 : -1, &value, is_other ? size - 1 : -1, values,
                           DType::kFloat64)
              ->Wait());
  CHECK(value == (is_one || is_other ? 4.5 : 0));
}

void CheckEverything(Communicator& group, DType dtype) {
  CAPTURE(std::string(Name(dtype)));
  CAPTURE(group.rank());
  for (size_t count : kCounts) {
    CAPTURE(count);
    if (count > 100'000 && dtype != DType::kFloat64 && dtype != DType::kFloat16) continue;
    CheckReduce(group, dtype, ReduceOp::kAverage, count);
    CheckReduce(group, dtype, ReduceOp::kProduct, count / 3);
    for (int root = 0; root < group.world_size(); ++root) {
      CheckGather(group, dtype, count / 2, root);
      CheckScatter(group, dtype, count / 2, root);
    }
    CheckAllToAll(group, dtype, count / 2);
    CheckSendReceive(group, dtype, count);
  }
}

TEST_CASE("pass parts: one rank keeps what it has") {
  internal::GroupMember alone;
  alone.timeout = std::chrono::seconds(30);
  auto formed = internal::FormLocalGroup(alone);
  REQUIRE(formed.ok());
  for (DType dtype : kAllTypes) CheckEverything(*formed->communicator, dtype);
}

TEST_CASE("pass parts: every layout gives what the ranks were meant to get") {
  const RankThreadsOptions layouts[] = {
      {.nodes = {2}},          {.nodes = {3}},
      {.nodes = {4}},          {.nodes = {2}, .use_tcp = true},
      {.nodes = {1, 1, 1, 1}}, {.nodes = {2, 2}},
      {.nodes = {2, 1, 2}},    {.nodes = {1, 2, 1}, .round_key = ddprun::testing::kTestRoundKey}};
  for (const RankThreadsOptions& layout : layouts) {
    CAPTURE(layout.nodes.size());
    CAPTURE(layout.nodes[0]);
    for (DType dtype : kAllTypes) {
      RunRankThreads(layout, [&](Communicator& group) { CheckEverything(group, dtype); });
    }
  }
}

const RankThreadsOptions kLayoutsOfThree[] = {
    {.nodes = {3}}, {.nodes = {3}, .use_tcp = true}, {.nodes = {2, 1}}};

TEST_CASE("pass parts: what one sends and another does not receive ends the group on all ranks") {
  for (const RankThreadsOptions& layout : kLayoutsOfThree) {
    RunRankThreads(layout, [](Communicator& group) {
      std::vector<float> input(300'000), output(300'000);
      CheckOk(group.SendReceive(input.data(), -1, output.data(), -1, 8, DType::kFloat32)->Wait());
      const int rank = group.rank();
      const size_t count = rank == 2 ? 299'999 : 300'000;
      const absl::Status status = group
                                      .SendReceive(input.data(), (rank + 1) % 3, output.data(),
                                                   (rank + 2) % 3, count, DType::kFloat32)
                                      ->Wait();
      CAPTURE(status.ToString());
      CHECK(absl::IsInvalidArgument(status));
      CHECK(status.message() ==
            "send-receive #2: rank 1 sends float32 x 300000 to rank 2, but rank 2 receives float32 "
            "x 299999 from rank 1");
      CHECK(group.error() == status);
    });
  }
}

TEST_CASE("pass parts: ranks that name different roots are told what each called") {
  for (const RankThreadsOptions& layout : kLayoutsOfThree) {
    RunRankThreads(layout, [](Communicator& group) {
      std::vector<float> input(8), output(24);
      const int root = group.rank() == 1 ? 1 : 0;
      const absl::Status status =
          group.Gather(input.data(), output.data(), 8, DType::kFloat32, root)->Wait();
      CAPTURE(status.ToString());
      CHECK(absl::IsInvalidArgument(status));
      CHECK(status.message() == Contains("rank 1 gather #1 (float32 x 8, root 1)"));
      CHECK(status.message() == Contains("gather #1 (float32 x 8, root 0)"));
    });
  }
}

TEST_CASE(
    "coalesced: ranks that cut otherwise are told, as their sums would be of other elements") {
  for (const RankThreadsOptions& layout : kLayoutsOfThree) {
    RunRankThreads(layout, [](Communicator& group) {
      std::vector<float> data(30);
      const size_t cut = group.rank() == 1 ? 20 : 10;
      const absl::Status status =
          group
              .AllReduceCoalesced({{data.data(), cut}, {data.data() + cut, 30 - cut}},
                                  DType::kFloat32, ReduceOp::kSum)
              ->Wait();
      CAPTURE(status.ToString());
      CHECK(absl::IsInvalidArgument(status));
      CHECK(status.message() == Contains(", in other pieces"));
    });
  }
}

TEST_CASE("pass parts: wrong arguments are refused on their rank, and the group goes on") {
  for (const RankThreadsOptions& layout : kLayoutsOfThree) {
    RunRankThreads(layout, [](Communicator& group) {
      const int rank = group.rank();
      const DType dtype = DType::kFloat32;
      float data[24] = {};
      const std::pair<absl::Status, std::string> refusals[] = {
          {group.Reduce(data, data, 8, dtype, ReduceOp::kSum, 3)->Wait(),
           "reduce to rank 3 in a group of 3 ranks"},
          {group.Gather(data, data, 8, dtype, -1)->Wait(),
           "gather to rank -1 in a group of 3 ranks"},
          {group.Scatter(data, data, 8, dtype, 3)->Wait(),
           "scatter from rank 3 in a group of 3 ranks"},
          {group.Scatter(nullptr, data, 8, dtype, rank)->Wait(), "the input is a null pointer"},
          {group.Gather(data, nullptr, 8, dtype, rank)->Wait(), "the output is a null pointer"},
          {group.AllToAll(nullptr, data, 8, dtype)->Wait(), "the input is a null pointer"},
          {group.AllToAll(data, data, 8, dtype)->Wait(), "the input and the output overlap"},
          {group.AllGather(data + 1, data, 8, dtype)->Wait(), "the input and the output overlap"},
          {group.ReduceScatter(data, data + 1, 8, dtype, ReduceOp::kSum)->Wait(),
           "the input and the output overlap"},
          {group.Reduce(data, data + 1, 8, dtype, ReduceOp::kSum, rank)->Wait(),
           "the input and the output overlap"},
          {group.SendReceive(data, 3, data, -1, 8, dtype)->Wait(),
           "send to rank 3 and receive from rank -1 in a group of 3 ranks"},
          {group.SendReceive(data, -2, data, -1, 8, dtype)->Wait(), "send to rank -2"},
          {group.SendReceive(data, rank, data + 8, -1, 8, dtype)->Wait(),
           "what a rank sends to itself it receives from itself"},
          {group.SendReceive(nullptr, (rank + 1) % 3, data, (rank + 2) % 3, 8, dtype)->Wait(),
           "the input is a null pointer"},
          {group.AllReduceCoalesced({{data, 4}, {nullptr, 2}}, dtype, ReduceOp::kSum)->Wait(),
           "all-reduce (float32 x 6 in 2 pieces, sum): piece 1 is a null pointer"},
          {group.AllReduceCoalesced({{data, SIZE_MAX}, {data, 9}}, dtype, ReduceOp::kSum)->Wait(),
           "more bytes than can be addressed"},
          {group.AllToAll(data, data, SIZE_MAX / 8, dtype)->Wait(),
           "more bytes than can be addressed"},
      };
      for (const auto& [status, words] : refusals) {
        CAPTURE(status.ToString());
        CHECK(absl::IsInvalidArgument(status));
        CHECK(status.message() == Contains(words));
      }
      CHECK(group.error().ok());
      CheckAllToAll(group, DType::kInt32, 5);
    });
  }
}

TEST_CASE("pass parts: gloo gives the same bytes") {
  constexpr int kRanks = 3, kRoot = 1;
  constexpr size_t kCount = 1001;
  const auto& torch = ddprun::testing::FindTorchPython();
  if (torch.python.empty()) return ddprun::testing::SkipWithoutTorch();
  const ddprun::testing::TempDir folder;
  for (int rank = 0; rank < kRanks; ++rank) {
    std::ofstream(folder.File("in." + std::to_string(rank)))
        << Parts(DType::kFloat32, rank, kRanks, kCount);
  }
  ddprun::testing::Subprocess python(
      {torch.python, ddprun::testing::Runfile("tests/worker_runtime/comm/torch_exchanges.py"),
       folder.path().string()});
  REQUIRE_MESSAGE(python.Wait(ddprun::testing::kTorchPatience) == 0, python.Describe());
  for (const RankThreadsOptions& layout : kLayoutsOfThree) {
    RunRankThreads(layout, [&](Communicator& group) {
      const int rank = group.rank();
      const DType dtype = DType::kFloat32;
      const std::string input = Parts(dtype, rank, kRanks, kCount);
      std::string all(input.size(), '\0'), one(kCount * sizeof(float), '\0');
      const auto check = [&](const char* name, const std::string& got) {
        CAPTURE(std::string(name));
        CHECK(got == ddprun::testing::ReadFile(
                         folder.File(std::string(name) + "." + std::to_string(rank))));
      };
      CheckOk(group.Gather(input.data(), all.data(), kCount, dtype, kRoot)->Wait());
      if (rank == kRoot) check("gather", all);
      CheckOk(group.Scatter(input.data(), one.data(), kCount, dtype, kRoot)->Wait());
      check("scatter", one);
      CheckOk(group.AllToAll(input.data(), all.data(), kCount, dtype)->Wait());
      check("all-to-all", all);
      CheckOk(group.Reduce(input.data(), one.data(), kCount, dtype, ReduceOp::kMax, kRoot)->Wait());
      if (rank == kRoot) check("reduce", one);
      CheckOk(group
                  .SendReceive(input.data() + kCount * sizeof(float), (rank + 1) % kRanks,
                               one.data(), (rank + 2) % kRanks, kCount, dtype)
                  ->Wait());
      check("send-receive", one);
    });
  }
}

}  // namespace
}  // namespace ddp::testing
