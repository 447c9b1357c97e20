// When the guardian last got each signal, which it tells its agent.
#ifndef DDPRUN_LAUNCHER_PROCESS_SIGNAL_NOTE_H_
#define DDPRUN_LAUNCHER_PROCESS_SIGNAL_NOTE_H_

#include <cstdint>

#include "launcher/process/process_baseline.h"
#include "process/raw_syscall.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// Lies in memory that both share. One writer: the guardian. Of a group of its own like the workers,
// it gets what is sent to all processes of a step or a service, and not what is sent to the agent
// or its group.
class SignalNote {
 public:
  // The guardian's. Async-signal-safe. `at`: nanoseconds of CLOCK_MONOTONIC.
  DDPRUN_RAW void Take(uint32_t signal, int64_t at) {
    if (signal <= kLastSignal) __atomic_store_n(&at_[signal], at, __ATOMIC_RELEASE);
  }

  // Whether it got the signal at `since` or later.
  bool HasSince(int signal, TimePoint since) const {
    const int64_t at = __atomic_load_n(&at_[signal], __ATOMIC_ACQUIRE);
    return at != 0 && TimePoint(std::chrono::nanoseconds(at)) >= since;
  }

 private:
  int64_t at_[kLastSignal + 1] = {};
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_SIGNAL_NOTE_H_
