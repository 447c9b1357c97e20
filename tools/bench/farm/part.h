// A process of a benchmark that is told what to do by lines of its stdin, and says what it uses.
#ifndef DDPRUN_TOOLS_BENCH_FARM_PART_H_
#define DDPRUN_TOOLS_BENCH_FARM_PART_H_

#include <time.h>

#include <cstdint>
#include <functional>
#include <string>

namespace ddprun::bench {

// Ends the process with one line on stderr.
[[noreturn]] void Fail(const std::string& what);

double CpuTime_ms(clockid_t clock = CLOCK_PROCESS_CPUTIME_ID);

// A figure of /proc/self/status: "VmRSS" and the like, in KiB there. 0: there is none.
int64_t FromStatus(const std::string& name);

// The next "VmHWM" is the greatest from now on.
void BeginPeakAnew();

// Gives each line, a verb and a number, to `command`, until stdin ends; what was printed goes out
// before the next one is read.
void Obey(const std::function<void(const std::string& verb, int number)>& command);

}  // namespace ddprun::bench

#endif  // DDPRUN_TOOLS_BENCH_FARM_PART_H_
