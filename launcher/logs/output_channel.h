// What a worker writes into and the log thread reads from: a pipe or a pseudo-terminal.
#ifndef DDPRUN_LAUNCHER_LOGS_OUTPUT_CHANNEL_H_
#define DDPRUN_LAUNCHER_LOGS_OUTPUT_CHANNEL_H_

#include "absl/status/statusor.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {

struct OutputChannel {
  UniqueFd read_end;  // non-blocking
  UniqueFd write_end;
  bool is_terminal = false;
};

// A pipe of 1 MiB, or of as much as this user may have.
absl::StatusOr<OutputChannel> OpenPipe();

// A terminal like `console_fd` (modes, size), which passes output through byte for byte: turning
// "\n" into "\r\n" is left to the real one. It never becomes anybody's controlling terminal.
absl::StatusOr<OutputChannel> OpenTerminalLike(int console_fd);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_OUTPUT_CHANNEL_H_
