// What of the workers' output was lost, and how that is told.
#ifndef DDPRUN_LAUNCHER_LOGS_LOG_LOSSES_H_
#define DDPRUN_LAUNCHER_LOGS_LOG_LOSSES_H_

#include <cstdint>
#include <string>

#include "launcher/logs/console_sink.h"
#include "launcher/logs/file_sink.h"

namespace ddprun::launcher {

struct LogLosses {
  uint64_t console_lines = 0;
  uint64_t refused_lines = 0;  // of those, what stdout or stderr refused: a file on a full disk
  int console_error = 0;       // errno of the last write there that failed
  uint64_t file_lines = 0;
  int file_error = 0;

  void Add(const FileSink& file);
  void Add(const ConsoleSink& console);
};

// One warning about what `now` has and `before` has not; "": nothing. What a stalled reader lost is
// not in it: its console says so itself. Nor is what a reader that has gone would have got.
std::string LossWarning(const LogLosses& before, const LogLosses& now, const std::string& folder);

// For stderr, when the reader of stdout has gone (ConsoleSink::TakeBreak).
std::string BreakWarning(int error);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_LOG_LOSSES_H_
