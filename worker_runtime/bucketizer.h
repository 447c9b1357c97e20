// Which gradients are reduced together, and in what order. [pure]
#ifndef DDPRUN_WORKER_RUNTIME_BUCKETIZER_H_
#define DDPRUN_WORKER_RUNTIME_BUCKETIZER_H_

#include <cstddef>
#include <vector>

#include "ddp/communicator.h"
#include "ddp/dtype.h"

namespace ddp::internal {

// One parameter's gradient.
struct GradientSpec {
  size_t count = 0;  // elements
  DType dtype = DType::kFloat32;
  DeviceType device = DeviceType::kCpu;
};

struct BucketLimits {
  size_t first_bytes = 1 << 20;  // of the first bucket of each type: reduction starts early
  size_t cap_bytes = 25 << 20;   // of all others
  // Each bucket is padded so that it divides into so many equal parts of whole cache lines: one
  // for each rank where gradients are sharded.
  int parts = 1;
};

// Elements that lie one behind the other in the arena, `offset` bytes from its start.
struct Run {
  size_t offset = 0;
  size_t count = 0;
};

// Gradients that share one all-reduce.
struct Bucket {
  DType dtype = DType::kFloat32;
  DeviceType device = DeviceType::kCpu;
  std::vector<int> parameters;  // in the order in which backward reaches them
  size_t count = 0;             // elements of `dtype`, padding between the tensors included
};

struct BucketLayout {
  std::vector<Bucket> buckets;           // in launch order
  std::vector<size_t> gradient_offsets;  // by parameter
  size_t arena_bytes = 0;
  int parts = 1;  // of each bucket
};

// Every tensor starts at a multiple of this: whole cache lines, the widest vector registers.
inline constexpr size_t kGradientAlignment = 64;
// Every bucket starts at a multiple of this: ranks that share memory divide a bucket by pages.
inline constexpr size_t kBucketAlignment = 4096;

// Walks the parameters in the order in which their gradients come, each once, and fills one open
// bucket per type and device; a bucket is closed once it holds its limit or more. So a tensor is
// never split, and a bucket exceeds its limit by at most one tensor (as in PyTorch). Buckets are
// ordered by when backward completes them. A function of the arguments alone: ranks that agree on
// these agree on it without talking. Leaves the counts at 0.
std::vector<Bucket> FillBuckets(const std::vector<GradientSpec>& gradients,
                                const BucketLimits& limits, const std::vector<int>& order);

// Buckets filled from the last registered parameter to the first, as backward does, and an arena in
// which each is one run.
//
// PyTorch begins with one bucket per type, so that its first step does not overlap, and moves the
// gradients to their buckets after it. Gradients here live in the buckets and do not move: where
// buckets are filled anew in another order, they are several runs each.
BucketLayout LayOutBuckets(const std::vector<GradientSpec>& gradients, const BucketLimits& limits);

// Where the bucket's gradients are, in their order: those that LayOutBuckets has put side by side
// are one run, with the padding between them.
std::vector<Run> RunsOf(const Bucket& bucket, const std::vector<size_t>& gradient_offsets,
                        const std::vector<GradientSpec>& gradients);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_BUCKETIZER_H_
