#include "ddp/distributed_sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

namespace ddp {
namespace {

struct Case {
  int64_t size;
  int rank, world_size;
  bool shuffle;
  uint64_t seed;
  bool drop_last;
  int64_t epoch;
};

DistributedSampler Sampler(const Case& c) {
  DistributedSampler sampler(c.size, c.rank, c.world_size,
                             {.shuffle = c.shuffle, .seed = c.seed, .drop_last = c.drop_last});
  sampler.SetEpoch(c.epoch);
  return sampler;
}

std::vector<int64_t> All(DistributedSampler sampler) { return sampler.Next(SIZE_MAX); }

// FNV-1a over the indices as little-endian 64-bit numbers.
uint64_t Fingerprint(const std::vector<int64_t>& indices) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const int64_t index : indices) {
    for (int shift = 0; shift < 64; shift += 8) {
      hash = (hash ^ (static_cast<uint64_t>(index) >> shift & 255)) * 0x100000001b3u;
    }
  }
  return hash;
}

// What list(torch.utils.data.DistributedSampler(...)) gave in PyTorch 2.13.0.
TEST_CASE("sampler: equals PyTorch's index for index on small sets") {
  const struct {
    Case c;
    std::vector<int64_t> indices;
  } golden[] = {
      {{10, 0, 1, true, 0, false, 0}, {4, 1, 7, 5, 3, 9, 0, 8, 6, 2}},
      {{10, 0, 4, true, 0, false, 0}, {4, 3, 6}},
      {{10, 3, 4, true, 0, false, 0}, {5, 8, 1}},
      {{10, 3, 4, true, 0, true, 0}, {5, 8}},
      {{10, 1, 4, true, 42, false, 3}, {6, 9, 1}},
      {{10, 2, 4, false, 0, false, 5}, {2, 6, 0}},
      {{10, 1, 4, false, 0, true, 0}, {1, 5}},
      {{3, 0, 8, true, 7, false, 1}, {0}},
      {{3, 6, 8, true, 7, false, 1}, {0}},
      {{3, 7, 8, false, 0, false, 0}, {1}},
      {{3, 1, 8, true, 0, true, 0}, {}},
      {{1, 2, 3, true, 9, false, 2}, {0}},
      {{13, 2, 3, true, 4294967301, false, 1}, {9, 1, 6, 3, 10}},
      {{13, 2, 3, true, 4294967295, false, 4}, {1, 4, 0, 6, 9}},
      {{16, 5, 8, true, 123456789, true, 11}, {4, 3}},
      {{17, 16, 17, true, 1, false, 0}, {1}},
  };
  for (const auto& [c, indices] : golden) {
    INFO("size ", c.size, ", rank ", c.rank, " of ", c.world_size, ", seed ", c.seed, ", epoch ",
         c.epoch);
    CHECK(All(Sampler(c)) == indices);
  }
}

TEST_CASE("sampler: equals PyTorch's index for index on large sets") {
  const struct {
    Case c;
    size_t count;
    uint64_t fingerprint;
  } golden[] = {
      {{60000, 0, 1, true, 0, false, 0}, 60000, 0xc7c1e74f57935fb9},
      {{60000, 3, 4, true, 42, false, 2}, 15000, 0xd69858c1bbf85556},
      {{60001, 6, 7, true, 42, false, 9}, 8572, 0x35cefcff3c01037e},
      {{100003, 12, 64, true, 2026, true, 77}, 1562, 0x521014035bac2c88},
  };
  for (const auto& [c, count, fingerprint] : golden) {
    INFO("size ", c.size, ", rank ", c.rank, " of ", c.world_size, ", seed ", c.seed, ", epoch ",
         c.epoch);
    const std::vector<int64_t> indices = All(Sampler(c));
    CHECK(indices.size() == count);
    CHECK(Fingerprint(indices) == fingerprint);
  }
}

TEST_CASE("sampler: without SetEpoch stands at the start of epoch 0") {
  const Case c{100, 1, 4, true, 5, false, 0};
  CHECK(All(DistributedSampler(100, 1, 4, {.seed = 5})) == All(Sampler(c)));
}

TEST_CASE("sampler: every epoch has its own order and every sample") {
  const std::vector<int64_t> first = All(Sampler({1000, 0, 1, true, 3, false, 0}));
  const std::vector<int64_t> second = All(Sampler({1000, 0, 1, true, 3, false, 1}));
  CHECK(first != second);
  CHECK(std::set<int64_t>(first.begin(), first.end()).size() == 1000);
  CHECK(std::set<int64_t>(second.begin(), second.end()).size() == 1000);
}

TEST_CASE("sampler: the k-th global batch holds the same samples for any number of ranks") {
  const auto batches = [](int world_size) {
    std::vector<std::set<int64_t>> out(10);
    for (int rank = 0; rank < world_size; ++rank) {
      DistributedSampler sampler = Sampler({1200, rank, world_size, true, 11, false, 4});
      for (std::set<int64_t>& batch : out) {
        for (const int64_t index : sampler.Next(120 / world_size)) batch.insert(index);
      }
      CHECK(sampler.remaining() == 0);
    }
    return out;
  };
  const std::vector<std::set<int64_t>> alone = batches(1);
  CHECK(alone[9].size() == 120);
  CHECK(batches(2) == alone);
  CHECK(batches(4) == alone);
}

TEST_CASE("sampler: Next gives the rest at the end of the epoch, then nothing") {
  DistributedSampler sampler(10, 0, 1);
  CHECK(sampler.Next(7).size() == 7);
  CHECK(sampler.Next(7).size() == 3);
  CHECK(sampler.Next(7).empty());
  sampler.SetEpoch(0);
  CHECK(sampler.remaining() == 10);
}

TEST_CASE("sampler: goes on inside an epoch where its state was taken") {
  for (int taken = 0; taken <= 25; ++taken) {
    DistributedSampler sampler = Sampler({100, 2, 4, true, 1, false, 6});
    sampler.Next(taken);
    const SamplerState state = sampler.state();
    CHECK(state.epoch == 6);
    CHECK(state.samples_taken == taken * 4);

    DistributedSampler other(100, 2, 4, {.seed = 1});
    other.Restore(state);
    other.SetEpoch(6);
    CHECK(All(other) == All(sampler));
    other.SetEpoch(7);
    CHECK(other.remaining() == 25);
  }
}

TEST_CASE("sampler: another epoch after Restore starts at its beginning") {
  DistributedSampler sampler(100, 0, 4);
  sampler.Restore({.epoch = 3, .samples_taken = 40});
  sampler.SetEpoch(5);
  CHECK(All(sampler) == All(Sampler({100, 0, 4, true, 0, false, 5})));
}

TEST_CASE("sampler: another number of ranks goes on with the samples that are left") {
  const std::vector<int64_t> order = All(Sampler({240, 0, 1, true, 8, false, 2}));
  for (const int world_size : {1, 2, 3, 5, 8}) {
    std::multiset<int64_t> seen;
    for (int rank = 0; rank < world_size; ++rank) {
      DistributedSampler sampler(240, rank, world_size, {.seed = 8});
      sampler.Restore({.epoch = 2, .samples_taken = 96});
      for (const int64_t index : sampler.Next(SIZE_MAX)) seen.insert(index);
    }
    const int64_t begin = 96 / world_size * world_size;
    CAPTURE(world_size);
    CHECK(seen == std::multiset<int64_t>(order.begin() + begin, order.end()));
  }
}

TEST_CASE("sampler: a state from a larger set stands at the end") {
  DistributedSampler sampler(10, 0, 2);
  sampler.Restore({.epoch = 0, .samples_taken = 1000});
  CHECK(sampler.remaining() == 0);
  CHECK(sampler.Next(3).empty());
}

TEST_CASE("sampler: an empty set has no samples") {
  DistributedSampler sampler(0, 1, 2);
  CHECK(sampler.samples_per_rank() == 0);
  CHECK(sampler.Next(5).empty());
}

}  // namespace
}  // namespace ddp
