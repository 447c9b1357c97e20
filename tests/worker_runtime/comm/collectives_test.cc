// Every operation with every type, over every backend and layout, against a plain reference. The
// reference sums in the canonical order and bytes are compared, so equal bits across layouts of one
// world size follow.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/rank_threads.h"
#include "tests/worker_runtime/comm/elements.h"

namespace ddp::testing {
namespace {

using ddprun::testing::RankThreadsOptions;
using ddprun::testing::RunRankThreads;

// Nothing; less than a vector; a little; more than the "small" paths; several chunks of staging.
constexpr size_t kCounts[] = {0, 1, 7, 1000, 40'001, 300'007};

// Memory at an odd address.
class Unaligned {
 public:
  explicit Unaligned(const std::string& bytes) : storage_(bytes.size() + 1, '\0') {
    std::memcpy(data(), bytes.data(), bytes.size());
  }
  char* data() { return storage_.data() + 1; }
  std::string bytes() const { return storage_.substr(1); }

 private:
  std::string storage_;
};

void CheckOk(const absl::Status& status) {
  INFO(status.ToString());
  CHECK(status.ok());
}

void CheckAllReduce(Communicator& group, DType dtype, ReduceOp op, size_t count) {
  Unaligned data(Inputs(dtype, group.rank(), 0, count));
  CheckOk(group.AllReduce(data.data(), count, dtype, op)->Wait());
  CHECK(data.bytes() == Reduced(dtype, op, group.world_size(), 0, count));
}

void CheckAllReduceShared(Communicator& group, DType dtype, ReduceOp op, size_t count) {
  const size_t offset = 3;  // an odd place in the middle of the buffer
  auto buffer = group.Allocate(count * SizeOf(dtype) + 8);
  if (!buffer.ok()) return CheckOk(buffer.status());
  char* data = static_cast<char*>((*buffer)->data());
  CHECK(std::string(data, 8) == std::string(8, '\0'));
  const std::string input = Inputs(dtype, group.rank(), 0, count);
  for (int round = 0; round < 2; ++round) {
    std::memcpy(data + offset, input.data(), input.size());
    CheckOk(group.AllReduce(data + offset, count, dtype, op)->Wait());
    CHECK(std::string(data + offset, input.size()) ==
          Reduced(dtype, op, group.world_size(), 0, count));
    CHECK(std::string(data, offset) == std::string(offset, '\0'));
    CHECK(data[offset + input.size()] == '\0');
  }
}

// Pieces that fit together, that do not, of nothing, and the first of them large.
void CheckCoalesced(Communicator& group, DType dtype, ReduceOp op) {
  const size_t counts[] = {40'001, 7, 0, 1000, 9000, 1, 30'000, 12};
  std::vector<Unaligned> data;
  std::vector<Piece> pieces;
  for (size_t count : counts) data.emplace_back(Inputs(dtype, group.rank(), count, count));
  for (size_t i = 0; i < data.size(); ++i) pieces.push_back({data[i].data(), counts[i]});
  CheckOk(group.AllReduceCoalesced(pieces, dtype, op)->Wait());
  for (size_t i = 0; i < data.size(); ++i) {
    CHECK(data[i].bytes() == Reduced(dtype, op, group.world_size(), counts[i], counts[i]));
  }
  CheckOk(group.AllReduceCoalesced({}, dtype, op)->Wait());
  CheckOk(group.AllReduceCoalesced({{nullptr, 0}, {nullptr, 0}}, dtype, op)->Wait());
}

void CheckBroadcast(Communicator& group, DType dtype, size_t count) {
  for (int root = 0; root < group.world_size(); ++root) {
    Unaligned data(Inputs(dtype, group.rank(), 5, count));
    CheckOk(group.Broadcast(data.data(), count, dtype, root)->Wait());
    CHECK(data.bytes() == Inputs(dtype, root, 5, count));
  }
}

void CheckAllGather(Communicator& group, DType dtype, size_t count) {
  std::string expected;
  for (int rank = 0; rank < group.world_size(); ++rank) expected += Inputs(dtype, rank, 9, count);
  Unaligned input(Inputs(dtype, group.rank(), 9, count));
  Unaligned output(std::string(expected.size(), '\0'));
  CheckOk(group.AllGather(input.data(), output.data(), count, dtype)->Wait());
  CHECK(output.bytes() == expected);
  // In place: the input is this rank's part of the output.
  Unaligned both(std::string(expected.size(), '\0'));
  char* mine = both.data() + static_cast<size_t>(group.rank()) * count * SizeOf(dtype);
  std::memcpy(mine, input.data(), count * SizeOf(dtype));
  CheckOk(group.AllGather(mine, both.data(), count, dtype)->Wait());
  CHECK(both.bytes() == expected);
}

void CheckReduceScatter(Communicator& group, DType dtype, ReduceOp op, size_t count) {
  const size_t ranks = static_cast<size_t>(group.world_size());
  const size_t first = static_cast<size_t>(group.rank()) * count;
  Unaligned input(Inputs(dtype, group.rank(), 0, ranks * count));
  Unaligned output(std::string(count * SizeOf(dtype), '\0'));
  CheckOk(group.ReduceScatter(input.data(), output.data(), count, dtype, op)->Wait());
  CHECK(output.bytes() == Reduced(dtype, op, group.world_size(), first, count));
  // In place: the output is this rank's part of the input.
  const std::string before = input.bytes();
  char* mine = input.data() + first * SizeOf(dtype);
  CheckOk(group.ReduceScatter(input.data(), mine, count, dtype, op)->Wait());
  CHECK(std::string(mine, count * SizeOf(dtype)) == output.bytes());
  std::memcpy(mine, before.data() + first * SizeOf(dtype), count * SizeOf(dtype));
  CHECK(input.bytes() == before);
}

void CheckEverything(Communicator& group, DType dtype) {
  CAPTURE(std::string(Name(dtype)));
  CAPTURE(group.rank());
  for (size_t count : kCounts) {
    CAPTURE(count);
    // Chunks are cut by bytes: a wide and a narrow accumulator see all there is.
    if (count > 100'000 && dtype != DType::kFloat32 && dtype != DType::kFloat16 &&
        dtype != DType::kInt8) {
      continue;
    }
    for (ReduceOp op : kAllReductions) {
      if (!Goes(dtype, op)) continue;
      CAPTURE(std::string(Name(op)));
      CheckAllReduce(group, dtype, op, count);
      CheckAllReduceShared(group, dtype, op, count);
      CheckReduceScatter(group, dtype, op, count / static_cast<size_t>(group.world_size()));
    }
    CheckBroadcast(group, dtype, count / 3);
    CheckAllGather(group, dtype, count / static_cast<size_t>(group.world_size()));
  }
  for (ReduceOp op : {ReduceOp::kAverage, ReduceOp::kMin}) CheckCoalesced(group, dtype, op);
  CheckOk(group.Barrier()->Wait());
}

void CheckLayout(const RankThreadsOptions& options, const char* backend) {
  for (DType dtype : kAllTypes) {
    RunRankThreads(options, [&](Communicator& group) {
      CHECK(std::string(group.backend()) == backend);
      CheckEverything(group, dtype);
    });
  }
}

TEST_CASE("collectives: one rank gives the reference's bytes") {
  internal::GroupMember alone;
  alone.timeout = std::chrono::seconds(30);
  auto formed = internal::FormLocalGroup(alone);
  REQUIRE(formed.ok());
  CHECK(std::string(formed->communicator->backend()) == "local");
  for (DType dtype : kAllTypes) CheckEverything(*formed->communicator, dtype);
}

TEST_CASE("collectives: shm gives the reference's bytes with 2 ranks") {
  CheckLayout({.nodes = {2}}, "shm");
}

TEST_CASE("collectives: shm gives the reference's bytes with 3 ranks") {
  CheckLayout({.nodes = {3}}, "shm");
}

TEST_CASE("collectives: shm gives the reference's bytes with 4 ranks") {
  CheckLayout({.nodes = {4}}, "shm");
}

TEST_CASE("collectives: tcp gives the reference's bytes with 2 ranks") {
  CheckLayout({.nodes = {2}, .use_tcp = true}, "tcp");
}

TEST_CASE("collectives: tcp gives the reference's bytes with 4 x 1 ranks") {
  CheckLayout({.nodes = {1, 1, 1, 1}}, "tcp");
}

TEST_CASE("collectives: tcp and shm together give the reference's bytes with 2 x 2 ranks") {
  CheckLayout({.nodes = {2, 2}}, "tcp");
}

TEST_CASE("collectives: tcp and shm together give the reference's bytes with uneven nodes") {
  CheckLayout({.nodes = {3, 1, 2}}, "tcp");
}

TEST_CASE("collectives: sealed links carry the same bits") {
  CheckLayout({.nodes = {3}, .use_tcp = true, .round_key = ddprun::testing::kTestRoundKey}, "tcp");
  CheckLayout({.nodes = {1, 2}, .round_key = ddprun::testing::kTestRoundKey}, "tcp");
}

// Ranks 1 and 2 have a NaN, and the zeros have different signs.
TEST_CASE("collectives: a maximum with a NaN is one, with the bits of the lowest rank's") {
  const RankThreadsOptions layouts[] = {
      {.nodes = {3}}, {.nodes = {3}, .use_tcp = true}, {.nodes = {2, 1}}};
  for (const RankThreadsOptions& layout : layouts) {
    for (ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
      for (size_t count : {size_t{5}, size_t{40'001}}) {
        RunRankThreads(layout, [&](Communicator& group) {
          const uint32_t of_rank[] = {0x80000000, 0x7fc00001, 0xffc00002};
          std::vector<uint32_t> nans(count, of_rank[group.rank()]);
          CheckOk(group.AllReduce(nans.data(), count, DType::kFloat32, op)->Wait());
          CHECK(nans == std::vector<uint32_t>(count, of_rank[1]));
          std::vector<float> zeros(count, group.rank() == 0 ? -0.0f : 0.0f);
          CheckOk(group.AllReduce(zeros.data(), count, DType::kFloat32, op)->Wait());
          for (float zero : zeros) REQUIRE(std::signbit(zero));
        });
      }
    }
  }
}

TEST_CASE("collectives: the average of bytes does not overflow, their sum wraps") {
  const RankThreadsOptions layouts[] = {
      {.nodes = {3}}, {.nodes = {3}, .use_tcp = true}, {.nodes = {2, 1}}};
  for (const RankThreadsOptions& layout : layouts) {
    RunRankThreads(layout, [](Communicator& group) {
      std::vector<uint8_t> average(40'001, 100), sum(40'001, 100);
      CheckOk(group.AllReduce(average.data(), average.size(), DType::kUint8, ReduceOp::kAverage)
                  ->Wait());
      CheckOk(group.AllReduce(sum.data(), sum.size(), DType::kUint8, ReduceOp::kSum)->Wait());
      CHECK(average == std::vector<uint8_t>(average.size(), 100));
      CHECK(sum == std::vector<uint8_t>(sum.size(), 300 - 256));
    });
  }
}

// What a sum rounded to bfloat16, or a factor of 1 / 3 so rounded, would miss: 1 + 1 + 1.0078125 is
// no bfloat16, and 1 / 3 as bfloat16 is 0.3 % too large.
TEST_CASE("collectives: the average of three bfloat16 is rounded once") {
  const RankThreadsOptions layouts[] = {
      {.nodes = {3}}, {.nodes = {3}, .use_tcp = true}, {.nodes = {2, 1}}};
  for (const RankThreadsOptions& layout : layouts) {
    RunRankThreads(layout, [](Communicator& group) {
      // Three of 1; 256 + 258 + 260, whose sum 774 is no bfloat16; 1 + 1 + 1.0078125.
      const uint16_t one = 0x3f80;
      const uint16_t of_rank[] = {0x4380, 0x4381, 0x4382};
      uint16_t data[] = {one, of_rank[group.rank()], group.rank() == 2 ? uint16_t{0x3f81} : one};
      CheckOk(group.AllReduce(data, 3, DType::kBFloat16, ReduceOp::kAverage)->Wait());
      CHECK(data[0] == one);
      CHECK(data[1] == of_rank[1]);
      // 3.0078125 / 3 = 1.0026, nearer to 1 than to 1.0078125.
      CHECK(data[2] == one);
    });
  }
}

TEST_CASE("collectives: operations run in the order of the calls, whoever waits") {
  RunRankThreads({.nodes = {3}}, [](Communicator& group) {
    constexpr size_t kCount = 100'000;
    std::vector<std::vector<int64_t>> data(8, std::vector<int64_t>(kCount, group.rank() + 1));
    std::vector<std::unique_ptr<Work>> works;
    for (auto& each : data) {
      works.push_back(group.AllReduce(each.data(), kCount, DType::kInt64, ReduceOp::kSum));
    }
    for (size_t i = works.size(); i-- > 0;) CheckOk(works[i]->Wait());
    for (size_t i = 0; i < works.size(); ++i) {
      CHECK(data[i][kCount - 1] == 6);
      CHECK(works[i]->IsDone());
      CHECK(works[i]->started_at() <= works[i]->ended_at());
      if (i > 0) CHECK(works[i - 1]->ended_at() <= works[i]->started_at());
    }
  });
}

}  // namespace
}  // namespace ddp::testing
