#include "process/exit_status.h"

#include <csignal>
#include <cstring>

#include "rendezvous/base/check.h"

namespace ddprun {

ExitStatus DecodeWaitInfo(int how, int value) {
  DDP_CHECK(how == CLD_EXITED || how == CLD_KILLED || how == CLD_DUMPED);
  if (how == CLD_EXITED) return ExitStatus{.exited = true, .code = value & 0xff};
  return ExitStatus{.exited = false, .signal = value, .dumped_core = how == CLD_DUMPED};
}

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  if (name == nullptr) return "signal " + std::to_string(signal);
  return std::string("SIG") + name;
}

}  // namespace ddprun
