#include "bench/caps.h"

#include <algorithm>
#include <utility>

namespace ddprun::bench {
namespace {

constexpr double kMiB = 1 << 20;

std::vector<std::vector<int>> BucketsOf(double cap_mb, const std::vector<size_t>& parameters) {
  std::vector<ddp::internal::GradientSpec> gradients;
  for (const size_t count : parameters) gradients.push_back({.count = count});
  std::vector<std::vector<int>> buckets;
  for (const ddp::internal::Bucket& bucket :
       LayOutBuckets(gradients, LimitsOf(static_cast<size_t>(cap_mb * kMiB))).buckets) {
    buckets.push_back(bucket.parameters);
  }
  return buckets;
}

}  // namespace

ddp::internal::BucketLimits LimitsOf(size_t cap_bytes) {
  return {.first_bytes = std::min<size_t>(cap_bytes, 1 << 20), .cap_bytes = cap_bytes};
}

std::vector<std::vector<double>> CapsByLayout(const std::vector<double>& caps_mb,
                                              const std::vector<size_t>& parameters) {
  std::vector<std::vector<double>> groups;
  std::vector<std::vector<int>> last;
  for (const double cap_mb : caps_mb) {
    std::vector<std::vector<int>> buckets = BucketsOf(cap_mb, parameters);
    if (groups.empty() || buckets != last) groups.emplace_back();
    groups.back().push_back(cap_mb);
    last = std::move(buckets);
  }
  return groups;
}

}  // namespace ddprun::bench
