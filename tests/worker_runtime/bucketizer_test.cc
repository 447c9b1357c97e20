#include "worker_runtime/bucketizer.h"

#include <doctest/doctest.h>

#include <set>

namespace ddp::internal {
namespace {

constexpr size_t kMiB = 1 << 20;

// float32 gradients of so many bytes each.
std::vector<GradientSpec> Floats(const std::vector<size_t>& bytes) {
  std::vector<GradientSpec> out;
  for (const size_t size : bytes) out.push_back({.count = size / 4, .dtype = DType::kFloat32});
  return out;
}

std::vector<std::vector<int>> Assignment(const BucketLayout& layout) {
  std::vector<std::vector<int>> out;
  for (const Bucket& bucket : layout.buckets) out.push_back(bucket.parameters);
  return out;
}

using Lists = std::vector<std::vector<int>>;

TEST_CASE("bucketizer: starts with the parameter that was registered last") {
  CHECK(Assignment(LayOutBuckets(Floats({400, 400, 400}), {})) == Lists{{2, 1, 0}});
}

TEST_CASE("bucketizer: closes the first bucket at 1 MiB and the others at 25 MiB") {
  const BucketLayout layout =
      LayOutBuckets(Floats({10 * kMiB, 10 * kMiB, 10 * kMiB, 10 * kMiB, kMiB / 2, kMiB / 2}), {});
  CHECK(Assignment(layout) == Lists{{5, 4}, {3, 2, 1}, {0}});
}

TEST_CASE("bucketizer: never splits a tensor, so a bucket may exceed its limit by one") {
  const BucketLayout layout = LayOutBuckets(Floats({4, 100 * kMiB, 24 * kMiB, kMiB - 4, 4}), {});
  CHECK(Assignment(layout) == Lists{{4, 3}, {2, 1}, {0}});
  CHECK(layout.buckets[1].count == (124 * kMiB) / 4);
}

TEST_CASE("bucketizer: a cap below 1 MiB also holds for the first bucket") {
  const BucketLimits limits{.first_bytes = kMiB, .cap_bytes = 1000};
  CHECK(Assignment(LayOutBuckets(Floats({500, 500, 500, 500}), limits)) == Lists{{3, 2}, {1, 0}});
}

TEST_CASE("bucketizer: types never share a bucket, each has its own small first one") {
  std::vector<GradientSpec> gradients = Floats({400, 400, 400, 400});
  gradients[1].dtype = gradients[3].dtype = DType::kBFloat16;
  const BucketLimits limits{.first_bytes = 200, .cap_bytes = 10000};
  const BucketLayout layout = LayOutBuckets(gradients, limits);
  // Complete in the order in which backward, 3 to 0, reaches each bucket's last parameter.
  CHECK(Assignment(layout) == Lists{{3}, {2}, {1}, {0}});
  CHECK(layout.buckets[0].dtype == DType::kBFloat16);
  CHECK(layout.buckets[1].dtype == DType::kFloat32);
}

TEST_CASE("bucketizer: devices never share a bucket") {
  std::vector<GradientSpec> gradients = Floats({400, 400});
  gradients[0].device = DeviceType::kCuda;
  CHECK(Assignment(LayOutBuckets(gradients, {})) == Lists{{1}, {0}});
}

TEST_CASE("bucketizer: an interleaved bucket comes after those that are complete before it") {
  std::vector<GradientSpec> gradients = Floats({400, 400, 400, 400});
  gradients[1].dtype = gradients[2].dtype = DType::kFloat64;
  CHECK(Assignment(LayOutBuckets(gradients, {})) == Lists{{2, 1}, {3, 0}});
}

TEST_CASE("bucketizer: no parameters give no buckets, empty ones give a bucket without elements") {
  CHECK(LayOutBuckets({}, {}).buckets.empty());
  CHECK(LayOutBuckets({}, {}).arena_bytes == 0);
  const BucketLayout layout = LayOutBuckets(Floats({0, 0}), {});
  CHECK(Assignment(layout) == Lists{{1, 0}});
  CHECK(layout.buckets[0].count == 0);
}

TEST_CASE("bucketizer: gradients are aligned, inside their bucket and apart from each other") {
  std::vector<GradientSpec> gradients;
  for (size_t i = 0; i < 200; ++i) {
    const DType dtype = i % 3 == 0 ? DType::kFloat64 : i % 3 == 1 ? DType::kFloat16 : DType::kUint8;
    gradients.push_back({.count = i * 37 % 1001, .dtype = dtype});
  }
  const BucketLayout layout = LayOutBuckets(gradients, {.first_bytes = 300, .cap_bytes = 5000});
  CHECK(layout.buckets.size() > 10);
  size_t end = 0;
  std::set<int> seen;
  for (const Bucket& bucket : layout.buckets) {
    const auto runs = RunsOf(bucket, layout.gradient_offsets, gradients);
    REQUIRE(runs.size() == 1);
    CHECK(runs[0].count == bucket.count);
    CHECK(runs[0].offset % kBucketAlignment == 0);
    CHECK(runs[0].offset >= end);
    end = runs[0].offset;
    for (const int parameter : bucket.parameters) {
      CHECK(seen.insert(parameter).second);
      CHECK(gradients[parameter].dtype == bucket.dtype);
      CHECK(layout.gradient_offsets[parameter] % kGradientAlignment == 0);
      CHECK(layout.gradient_offsets[parameter] >= end);
      end = layout.gradient_offsets[parameter] + gradients[parameter].count * SizeOf(bucket.dtype);
    }
    CHECK(end == runs[0].offset + bucket.count * SizeOf(bucket.dtype));
  }
  CHECK(seen.size() == gradients.size());
  CHECK(layout.arena_bytes >= end);
}

TEST_CASE("bucketizer: each bucket divides into parts of whole cache lines, behind its tensors") {
  std::vector<GradientSpec> gradients = Floats({400, 0, 4, 1 * kMiB});
  gradients[2].dtype = DType::kBFloat16;
  for (const int parts : {2, 3, 7}) {
    const BucketLayout layout =
        LayOutBuckets(gradients, {.first_bytes = 300, .cap_bytes = 5000, .parts = parts});
    CHECK(layout.parts == parts);
    size_t end = 0;
    for (const Bucket& bucket : layout.buckets) {
      const size_t bytes = bucket.count * SizeOf(bucket.dtype);
      CHECK(bytes % (static_cast<size_t>(parts) * kGradientAlignment) == 0);
      const size_t begin = layout.gradient_offsets[bucket.parameters.front()];
      CHECK(begin >= end);
      end = begin + bytes;
      for (const int id : bucket.parameters) {
        CHECK(layout.gradient_offsets[id] + gradients[id].count * SizeOf(bucket.dtype) <= end);
      }
    }
    CHECK(layout.arena_bytes >= end);
  }
}

}  // namespace
}  // namespace ddp::internal
