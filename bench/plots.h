// The plots of the page, each an <svg> element. [pure]
#ifndef DDPRUN_BENCH_PLOTS_H_
#define DDPRUN_BENCH_PLOTS_H_

#include <string>

#include "bench/report.h"

namespace ddprun::bench {

std::string ThroughputPlot(const Report& report);
// Of the rows with the most ranks.
std::string MemoryPlot(const Report& report);
// One step of each way with the most ranks, on one scale.
std::string TimelinePlot(const Report& report);
std::string SweepPlot(const Report& report);

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_PLOTS_H_
