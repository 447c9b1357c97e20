// What workers that have ended left behind: the last lines of their stderr and their error files.
// Reading it may take as long as a file system and the log thread like: never on the agent's
// thread.
#ifndef DDPRUN_LAUNCHER_REPORT_LAST_WORDS_H_
#define DDPRUN_LAUNCHER_REPORT_LAST_WORDS_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "launcher/report/job_record.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// How long dead workers' last lines are waited for: a grandchild may hold the pipe open.
inline constexpr Duration kTailTimeout = std::chrono::milliseconds(100);

// The last `max_lines` lines of a worker's stderr, waited for `timeout` at most
// (LogRouter::StderrTail).
using TailReader = std::function<std::string(int local_rank, size_t max_lines, Duration timeout)>;

// `text` without what steers a terminal: sequences that begin with ESC [, ESC ] or an intermediate
// character, as Python's coloured tracebacks have them. One that does not end stays.
std::string WithoutEscapeSequences(const std::string& text);

// `dead` with the texts of the first `room` failures among them. The tails of all are waited for
// half a second together. An error file that says that a peer left is removed.
std::vector<LastWords> ReadLastWords(std::vector<LastWords> dead, size_t room,
                                     const TailReader& tail);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_LAST_WORDS_H_
