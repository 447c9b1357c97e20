// How much ddprun says of what it does, as the environment asks for it. [pure]
#ifndef DDPRUN_LAUNCHER_LOGS_LOG_LEVEL_H_
#define DDPRUN_LAUNCHER_LOGS_LOG_LEVEL_H_

#include <optional>
#include <string>

namespace ddprun::launcher {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError, kOff };

struct LogLevelChoice {
  LogLevel level = LogLevel::kWarn;
  std::string warning;  // about a value that names no level, for the user; "": none
};

// The variables that choose; not set or empty: says nothing.
struct LogLevelVariables {
  std::optional<std::string> ddprun_log_level;  // trace, debug, info, warn, error or off; wins
  std::optional<std::string> loglevel;  // torchrun's: a level of Python's logging, name or number
};

// torchrun ends with a traceback at a LOGLEVEL that it does not know; here such a value costs its
// line and nothing else: it may be meant for the training program.
LogLevelChoice ChooseLogLevel(const LogLevelVariables& variables);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_LOG_LEVEL_H_
