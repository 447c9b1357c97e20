#include "worker_runtime/bucketizer.h"

#include <algorithm>
#include <map>
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

std::vector<Bucket> Fill(const std::vector<GradientSpec>& gradients, const BucketLimits& limits) {
  std::map<Key, OpenBucket> open;
  std::vector<Bucket> buckets;
  const auto close = [&buckets](const Key& key, OpenBucket& bucket) {
    buckets.push_back(
        {.dtype = key.first, .device = key.second, .parameters = std::move(bucket.parameters)});
    bucket = {.parameters = {}, .bytes = 0, .is_first = false};
  };
  for (int i = static_cast<int>(gradients.size()) - 1; i >= 0; --i) {
    const GradientSpec& gradient = gradients[i];
    const Key key(gradient.dtype, gradient.device);
    OpenBucket& bucket = open[key];
    bucket.parameters.push_back(i);
    bucket.bytes += gradient.count * SizeOf(gradient.dtype);
    const size_t first = std::min(limits.first_bytes, limits.cap_bytes);
    if (bucket.bytes >= (bucket.is_first ? first : limits.cap_bytes)) close(key, bucket);
  }
  for (auto& [key, bucket] : open) {
    if (!bucket.parameters.empty()) close(key, bucket);
  }
  // A bucket is complete when backward reaches its earliest registered parameter, its last one.
  std::sort(buckets.begin(), buckets.end(), [](const Bucket& a, const Bucket& b) {
    return a.parameters.back() > b.parameters.back();
  });
  return buckets;
}

}  // namespace

BucketLayout LayOutBuckets(const std::vector<GradientSpec>& gradients, const BucketLimits& limits) {
  BucketLayout layout;
  layout.buckets = Fill(gradients, limits);
  layout.gradient_offsets.resize(gradients.size());
  size_t end = 0;
  for (Bucket& bucket : layout.buckets) {
    bucket.offset = end = RoundUp(end, kBucketAlignment);
    for (const int parameter : bucket.parameters) {
      end = RoundUp(end, kGradientAlignment);
      layout.gradient_offsets[parameter] = end;
      end += gradients[parameter].count * SizeOf(bucket.dtype);
    }
    bucket.count = (end - bucket.offset) / SizeOf(bucket.dtype);
  }
  layout.arena_bytes = RoundUp(end, kBucketAlignment);
  return layout;
}

}  // namespace ddp::internal
