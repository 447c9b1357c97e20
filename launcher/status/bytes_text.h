// Amounts of memory and disk for people. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_BYTES_TEXT_H_
#define DDPRUN_LAUNCHER_STATUS_BYTES_TEXT_H_

#include <cstdint>
#include <string>

namespace ddprun::launcher {

// "64 GiB", "63.9 GiB", "512 MiB", "100 bytes": one decimal where it says something. Rounded down,
// so that what is below a limit is not shown as the limit.
std::string BytesText(int64_t bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_BYTES_TEXT_H_
