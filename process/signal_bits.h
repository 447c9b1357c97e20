// Signal sets and actions as the kernel has them.
#ifndef DDPRUN_PROCESS_SIGNAL_BITS_H_
#define DDPRUN_PROCESS_SIGNAL_BITS_H_

#include <cstdint>

namespace ddprun {

// Bit n-1 is signal n. glibc's sigset_t calls hide its own signals 32 and 33 and, under a
// sanitizer, report the sanitizer's view.
using SignalBits = uint64_t;
inline constexpr int kLastSignal = 64;
struct KernelSigaction {  // the kernel's struct sigaction on x86-64 and arm64
  void* handler;
  unsigned long flags;
  void* restorer;
  SignalBits mask;
};
constexpr SignalBits BitOf(int signal) { return SignalBits{1} << (signal - 1); }

}  // namespace ddprun

#endif  // DDPRUN_PROCESS_SIGNAL_BITS_H_
