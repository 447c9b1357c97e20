// The wall clock, for what is told to people and programs. Not for pure code.
#ifndef DDPRUN_LAUNCHER_REPORT_UNIX_TIME_H_
#define DDPRUN_LAUNCHER_REPORT_UNIX_TIME_H_

#include <chrono>
#include <cstdint>

namespace ddprun::launcher {

inline int64_t UnixTimeMs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_UNIX_TIME_H_
