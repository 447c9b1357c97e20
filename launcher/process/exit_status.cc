#include "launcher/process/exit_status.h"

#include <csignal>
#include <cstring>

#include "rendezvous/base/check.h"

namespace ddprun::launcher {

ExitStatus DecodeWaitInfo(int how, int value) {
  DDP_CHECK(how == CLD_EXITED || how == CLD_KILLED || how == CLD_DUMPED);
  if (how == CLD_EXITED) return ExitStatus{.exited = true, .code = value & 0xff};
  return ExitStatus{.exited = false, .signal = value, .dumped_core = how == CLD_DUMPED};
}

int ExitCodeOf(const ExitStatus& status) {
  if (status.is_unknown) return kExitBug;
  return status.exited ? status.code : kExitSignalBase + status.signal;
}

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  if (name == nullptr) return "signal " + std::to_string(signal);
  return std::string("SIG") + name;
}

std::string ToString(const ExitStatus& status) {
  if (status.is_unknown) return "ended, but its exit status was taken by another waiter in ddprun";
  if (status.exited) return "exit code " + std::to_string(status.code);
  std::string text = "killed by signal " + std::to_string(status.signal);
  if (const char* name = sigabbrev_np(status.signal); name != nullptr) {
    text += std::string(" (SIG") + name + ")";
  }
  if (status.dumped_core) text += ", core dumped";
  return text;
}

}  // namespace ddprun::launcher
