// report_step_bench CALLS step|no_page|group: prints the nanoseconds of CPU time of one
// ddp::ReportStep(), with a page as an agent makes it and without one, or those of what one
// operation of a group says.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "ddp/progress.h"
#include "tools/bench/report_step/make_page.h"
#include "worker_runtime/counters.h"

namespace {

using Clock = std::chrono::steady_clock;

double CpuTime() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return 1e9 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec);
}

template <typename Call>
double Measure(int64_t calls, Call call) {
  const double start = CpuTime();
  for (int64_t i = 1; i <= calls; ++i) call(i);
  return (CpuTime() - start) / static_cast<double>(calls);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int64_t calls = std::atoll(argv[1]);
  const std::string what = argv[2];
  if (what == "no_page" ? unsetenv(ddp::internal::kCountersVar) != 0 : !ddprun::bench::MakePage())
    return 1;
  ddp::ReportStep(0);
  if (what == "group") {
    auto* group = ddp::internal::Counters::OfThisProcess()->OpenGroup(1, "bench", 0, 2);
    const Clock::time_point at = Clock::now();
    std::printf("%f\n", Measure(calls, [&](int64_t i) {
                  group->Called(static_cast<uint64_t>(i), 0, at);
                  group->Done(static_cast<uint64_t>(i), at);
                }));
  } else {
    std::printf("%f\n", Measure(calls, [](int64_t i) { ddp::ReportStep(i, 32); }));
  }
  return 0;
}
