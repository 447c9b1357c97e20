// A point in time for people and programs, in UTC: a job's nodes may stand in several zones. [pure]
#ifndef DDPRUN_LAUNCHER_REPORT_UTC_TEXT_H_
#define DDPRUN_LAUNCHER_REPORT_UTC_TEXT_H_

#include <cstdint>
#include <string>

namespace ddprun::launcher {

// "2025-01-31T12:00:00.123Z" with `separator` 'T'. "" for a time that is not known: 0 and less.
std::string UtcText(int64_t unix_time_ms, char separator);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_UTC_TEXT_H_
