#include "launcher/commands/terminal.h"

#include <cerrno>
#include <cstdio>

#include "launcher/process/exit_status.h"

namespace ddprun::launcher {

int Complain(const absl::Status& error, int exit_code) {
  if (error.message().empty()) return exit_code;
  std::fprintf(stderr, "ddprun: error: %s\n", std::string(error.message()).c_str());
  return exit_code;
}

void Warn(const std::vector<std::string>& warnings) {
  for (const std::string& text : warnings) {
    std::fprintf(stderr, "ddprun: warning: %s\n", text.c_str());
  }
}

int Print(const std::string& text) {
  // A long text is written by fputs already, a short one by fflush alone.
  const bool is_taken = std::fputs(text.c_str(), stdout) != EOF;
  if (std::fflush(stdout) == 0 && is_taken) return kExitSuccess;
  return Complain(absl::ErrnoToStatus(errno, "write to stdout"), kExitMachine);
}

}  // namespace ddprun::launcher
