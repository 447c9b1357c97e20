// What `ddprun top` shows of a job: one screen of any size. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_TOP_SCREEN_H_
#define DDPRUN_LAUNCHER_STATUS_TOP_SCREEN_H_

#include <string>
#include <vector>

#include "launcher/status/snapshot.h"

namespace ddprun::launcher {

// The speed lately, in even distances of time, the newest last; NaN where it was unknown.
struct SpeedHistory {
  std::string unit;  // "samples/s" or "steps/s"
  std::vector<double> values;
};

struct TopOptions {
  int columns = 80, rows = 24;
  bool allows_colours = false;  // of states; what NO_COLOR says is the caller's business
  bool is_utf8 = true;          // the terminal shows blocks for the curve, else ASCII
  bool shows_last_lines = true;
};

// Exactly `rows` lines of at most `columns`, without line feeds: what StatusText says, cut to fit,
// the speed as a curve, the ranks worst first, and in the last line the keys.
std::vector<std::string> TopScreen(const JobView& job, const SpeedHistory& history,
                                   const TopOptions& options);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_TOP_SCREEN_H_
