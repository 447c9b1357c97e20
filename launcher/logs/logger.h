// Our own log: an spdlog::logger whose lines take their place among what the workers write.
//
// spdlog's headers cost several seconds of compile time a file. So this header only names the
// logger; who logs includes <spdlog/logger.h>, and who passes it on includes nothing.
#ifndef DDPRUN_LAUNCHER_LOGS_LOGGER_H_
#define DDPRUN_LAUNCHER_LOGS_LOGGER_H_

#include <memory>

#include "launcher/logs/log_level.h"

namespace spdlog {
class logger;
}

namespace ddprun::launcher {

class LogRouter;

// A logger of lines "ddprun: info: 12:00:00.123 workers started run=job1 ...", handed to
// LogRouter::Offer: on any thread, never blocking, bounded; a gap is told of. Control characters
// are escaped and a line is cut at 4 KiB, whatever a library or a peer puts into a message. `logs`
// is borrowed and must outlive it. Has no thread, registers nowhere, flushes nothing. A shared_ptr,
// because it can be destroyed where the type is only declared; nobody shares it.
std::shared_ptr<spdlog::logger> MakeLogger(LogRouter& logs, LogLevel level);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_LOGGER_H_
