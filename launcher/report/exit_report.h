// The end of a failed job, told to people: the report, and Kubernetes' termination message. [pure]
#ifndef DDPRUN_LAUNCHER_REPORT_EXIT_REPORT_H_
#define DDPRUN_LAUNCHER_REPORT_EXIT_REPORT_H_

#include <cstddef>
#include <optional>
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
  // What the first failing worker wrote to stderr stands above, in the same output.
  bool is_stderr_shown = false;
  // Whose output has the whole report, where all nodes write into one; empty: this node's.
  std::string report_node{};
};

// Text for stderr, with a newline at its end: torchrun's block (what greps for "FAILED", "Root
// Cause" or "exitcode" finds it), the last lines that the first failing worker wrote, and a last
// line that says whose exit code ddprun returns. Workers that failed alike share an entry. "" for a
// job that succeeded, the last line alone where another node has the report. What came from workers
// is escaped: it cannot steer the terminal. The first failure's texts are whole unless they are
// huge; of the others' tracebacks some KiB are shown, and of more failures than fit only the ranks.
std::string RenderExitReport(const ExitReportInput& input);

// What Kubernetes keeps of a container's termination message.
inline constexpr size_t kMaxTerminationBytes = 4096;

struct TerminationInput {
  std::optional<rendezvous::FailureReport> first_failure;  // of the job, on whatever node
  int exit_code = 0;                                       // of ddprun on this node, and why
  std::string reason;
};

// The same end for a cluster's manager, at most kMaxTerminationBytes of plain lines: whose failure
// it is, what the worker said of it, and as many of its last lines as there is room for. "" for
// a success.
std::string RenderTerminationMessage(const TerminationInput& input);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_EXIT_REPORT_H_
