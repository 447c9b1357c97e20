// A report as the command makes one, with round numbers.
#ifndef DDPRUN_TESTS_BENCH_EXAMPLE_REPORT_H_
#define DDPRUN_TESTS_BENCH_EXAMPLE_REPORT_H_

#include "bench/report.h"

namespace ddprun::bench {

// Both ways with 1, 2 and 4 ranks on 4 cores; DistributedDataParallel scales well.
Report ExampleReport();
// Its row. REQUIRES: there is one.
Row& RowOf(Report& report, Way way, int ranks);

}  // namespace ddprun::bench

#endif  // DDPRUN_TESTS_BENCH_EXAMPLE_REPORT_H_
