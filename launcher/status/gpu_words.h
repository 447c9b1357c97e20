// What a GPU's driver reports, in words. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_GPU_WORDS_H_
#define DDPRUN_LAUNCHER_STATUS_GPU_WORDS_H_

#include <cstdint>
#include <string>

namespace ddprun::launcher {

// NVML's bits for why clocks are lower than they could be (nvmlClocksEventReasons, in drivers
// before R535 nvmlClocksThrottleReasons). An idle GPU, set clocks and a display are no reason here.
inline constexpr uint64_t kSoftwarePowerCap = 0x4;
inline constexpr uint64_t kHardwareSlowdown = 0x8;  // one of those below, or both
inline constexpr uint64_t kSyncBoost = 0x10;
inline constexpr uint64_t kSoftwareThermal = 0x20;
inline constexpr uint64_t kHardwareThermal = 0x40;
inline constexpr uint64_t kHardwarePowerBrake = 0x80;

// "hardware thermal slowdown, software power cap"; empty: for none.
std::string ThrottleText(uint64_t reasons);

// Whether it is worth a line: heat, or the power supply's brake. A busy GPU at its power limit, or
// one held back with its group, is as it is meant to be.
bool IsThrottleProblem(uint64_t reasons);

// What NVIDIA's driver means by an XID, short: "it has fallen off the bus". Empty: no well-known
// one.
std::string XidMeaning(int xid);

// False for what follows the end of any process that used the GPU, a killed one's too.
bool IsXidProblem(int xid);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_GPU_WORDS_H_
