// What `ddprun status` prints of a job. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_STATUS_TEXT_H_
#define DDPRUN_LAUNCHER_STATUS_STATUS_TEXT_H_

#include <string>

#include "launcher/status/snapshot.h"

namespace ddprun::launcher {

struct TextOptions {
  int columns = 100;            // no line is wider
  bool allows_colours = false;  // of states; what NO_COLOR says is the caller's business
  bool shows_last_lines = true;
};

// Lines, each with a line feed: the job's sentence, what it waits for, its problems, its ranks, how
// its newest round began, its first fault. Of more than 64 ranks only those that stand out, how the
// others spread, and the nodes.
std::string StatusText(const JobView& job, const TextOptions& options);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_STATUS_TEXT_H_
