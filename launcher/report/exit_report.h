// The end of a failed job, told to people. [pure]
#ifndef DDPRUN_LAUNCHER_REPORT_EXIT_REPORT_H_
#define DDPRUN_LAUNCHER_REPORT_EXIT_REPORT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "rendezvous/core/types.h"

namespace ddprun::launcher {

// The most that a report may take: it is said as one message, for which the console must have room.
inline constexpr size_t kMaxExitReportBytes = 224 * 1024;

struct ExitReportInput {
  rendezvous::Verdict verdict;
  std::string title;  // the program as the user called it
  // Workers of this node that failed in the same round; the first failure may be one of them.
  std::vector<rendezvous::FailureReport> local_failures;
};

// Text for stderr, with a newline at its end: torchrun's block (what greps for "FAILED", "Root
// Cause" or "exitcode" finds it), the last lines that the first failing worker wrote, and a last
// line that says whose exit code ddprun returns. Workers that failed alike share an entry. "" for a
// job that succeeded. What came from workers is escaped: it cannot steer the terminal. The first
// failure's texts are whole unless they are huge; of the others' tracebacks some KiB are shown, and
// of more failures than fit only the ranks.
std::string RenderExitReport(const ExitReportInput& input);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_EXIT_REPORT_H_
