// What the JSON of a snapshot may hold: the writer keeps to it, the reader insists on it. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_JSON_LIMITS_H_
#define DDPRUN_LAUNCHER_STATUS_JSON_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace ddprun::launcher {

inline constexpr int kSchemaVersion = 1;

inline constexpr size_t kMaxTextBytes = 1024;
inline constexpr size_t kMaxLinesBytes = 16 * 1024;     // of a text of several lines
inline constexpr double kMaxNumber = 1e15;              // none is negative
inline constexpr int64_t kMaxWhole = int64_t{1} << 53;  // JavaScript's numbers are exact up to it
inline constexpr int kLeastInt = -1;

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_JSON_LIMITS_H_
