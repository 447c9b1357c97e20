// What /proc/PID/syscall says, in words. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_SYSTEM_CALLS_H_
#define DDPRUN_LAUNCHER_STATUS_SYSTEM_CALLS_H_

#include <optional>
#include <string>
#include <string_view>

namespace ddprun::launcher {

enum class Machine { kX8664, kArm64 };

#if defined(__aarch64__)
inline constexpr Machine kThisMachine = Machine::kArm64;
#else
inline constexpr Machine kThisMachine = Machine::kX8664;
#endif

struct SystemCall {
  std::string name;                 // "futex"; "system call 451" for one that does not wait
  std::optional<int> descriptor{};  // what it reads, writes or waits for, where it names one
  friend bool operator==(const SystemCall&, const SystemCall&) = default;
};

// Of the file's text: "202 0x7ffd... 0x189 ...". None: it runs ("running"), waits outside of a
// system call ("-1 ..."), or the text is no such text.
std::optional<SystemCall> ParseSystemCall(std::string_view text, Machine machine = kThisMachine);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_SYSTEM_CALLS_H_
