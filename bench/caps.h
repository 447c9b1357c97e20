// Which values of bucket_cap_mb differ for a network. [pure]
#ifndef DDPRUN_BENCH_CAPS_H_
#define DDPRUN_BENCH_CAPS_H_

#include <cstddef>
#include <vector>

#include "worker_runtime/bucketizer.h"

namespace ddprun::bench {

// What training with this cap asks for: a first bucket of 1 MiB at most.
ddp::internal::BucketLimits LimitsOf(size_t cap_bytes);

// The values, ascending, in groups of those that put the same gradients together: within a group
// there is nothing to compare. Neighbours alone are compared, as buckets only grow with the cap.
// `parameters` are their numbers of float32 elements, in the order of registration.
std::vector<std::vector<double>> CapsByLayout(const std::vector<double>& caps_mb,
                                              const std::vector<size_t>& parameters);

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_CAPS_H_
