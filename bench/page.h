// The results as one HTML page with plots. [pure]
#ifndef DDPRUN_BENCH_PAGE_H_
#define DDPRUN_BENCH_PAGE_H_

#include <string>

#include "bench/report.h"

namespace ddprun::bench {

// Complete in itself: its style and its plots are in it, and it asks for nothing else. Light or
// dark as the browser is.
std::string PageHtml(const Report& report);

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_PAGE_H_
