#include "launcher/process/exit_status.h"

#include <cstring>

namespace ddprun::launcher {

int ExitCodeOf(const ExitStatus& status) {
  if (status.is_unknown) return kExitBug;
  return status.exited ? status.code : kExitSignalBase + status.signal;
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
