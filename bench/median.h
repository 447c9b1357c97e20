// The middle of numbers.
#ifndef DDPRUN_BENCH_MEDIAN_H_
#define DDPRUN_BENCH_MEDIAN_H_

#include <vector>

namespace ddprun::bench {

// The middle one, or the mean of the two; 0 for none.
double Median(std::vector<double> values);

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_MEDIAN_H_
