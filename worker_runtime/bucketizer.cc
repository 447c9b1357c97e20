#include "worker_runtime/bucketizer.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace ddp::internal {
namespace {

using Key = std::pair<DType, DeviceType>;

struct OpenBucket {
  std::vector<int> parameters;
  size_t bytes = 0;
  bool is_first = true;
};

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

std::vector<Bucket> FillBuckets(const std::vector<GradientSpec>& gradients,
                                const BucketLimits& limits, const std::vector<int>& order) {
  std::map<Key, OpenBucket> open;
  std::vector<Bucket> buckets;
  const auto close = [&buckets](const Key& key, OpenBucket& bucket) {
    buckets.push_back(
        {.dtype = key.first, .device = key.second, .parameters = std::move(bucket.parameters)});
    bucket = {.parameters = {}, .bytes = 0, .is_first = false};
  };
  for (const int parameter : order) {
    const GradientSpec& gradient = gradients[parameter];
    const Key key(gradient.dtype, gradient.device);
    OpenBucket& bucket = open[key];
    bucket.parameters.push_back(parameter);
    bucket.bytes += gradient.count * SizeOf(gradient.dtype);
    const size_t first = std::min(limits.first_bytes, limits.cap_bytes);
    if (bucket.bytes >= (bucket.is_first ? first : limits.cap_bytes)) close(key, bucket);
  }
  for (auto& [key, bucket] : open) {
    if (!bucket.parameters.empty()) close(key, bucket);
  }
  // A bucket is complete when backward reaches its last parameter.
  std::vector<size_t> place(order.size());
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  std::sort(buckets.begin(), buckets.end(), [&place](const Bucket& a, const Bucket& b) {
    return place[a.parameters.back()] < place[b.parameters.back()];
  });
  return buckets;
}

BucketLayout LayOutBuckets(const std::vector<GradientSpec>& gradients, const BucketLimits& limits) {
  std::vector<int> order(gradients.size());
  std::iota(order.rbegin(), order.rend(), 0);
  BucketLayout layout;
  layout.parts = limits.parts;
  layout.buckets = FillBuckets(gradients, limits, order);
  layout.gradient_offsets.resize(gradients.size());
  size_t end = 0;
  for (Bucket& bucket : layout.buckets) {
    const size_t begin = end = RoundUp(end, kBucketAlignment);
    for (const int parameter : bucket.parameters) {
      end = RoundUp(end, kGradientAlignment);
      layout.gradient_offsets[parameter] = end;
      end += gradients[parameter].count * SizeOf(bucket.dtype);
    }
    if (limits.parts > 1) {
      const size_t lines = static_cast<size_t>(limits.parts) * kGradientAlignment;
      end = begin + RoundUp(end - begin, lines);
    }
    bucket.count = (end - begin) / SizeOf(bucket.dtype);
  }
  layout.arena_bytes = RoundUp(end, kBucketAlignment);
  return layout;
}

std::vector<Run> RunsOf(const Bucket& bucket, const std::vector<size_t>& gradient_offsets,
                        const std::vector<GradientSpec>& gradients) {
  const size_t size = SizeOf(bucket.dtype);
  std::vector<Run> runs;
  for (const int parameter : bucket.parameters) {
    const size_t offset = gradient_offsets[parameter];
    const size_t end = offset + gradients[parameter].count * size;
    const bool goes_on = !runs.empty() && offset == RoundUp(runs.back().offset +  //
                                                                runs.back().count * size,
                                                            kGradientAlignment);
    if (!goes_on) runs.push_back({.offset = offset, .count = 0});
    runs.back().count = (end - runs.back().offset) / size;
  }
  return runs;
}

}  // namespace ddp::internal
