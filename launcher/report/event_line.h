// An event of the job as JSON: docs/reference/events.md has the fields. A function of its arguments
// alone.
#ifndef DDPRUN_LAUNCHER_REPORT_EVENT_LINE_H_
#define DDPRUN_LAUNCHER_REPORT_EVENT_LINE_H_

#include <string>

#include "launcher/report/job_event.h"

namespace ddprun::launcher {

// One JSON object on one line, without a newline. Bytes that are not UTF-8 become U+FFFD. Texts of
// more than 4 KiB are cut, and of the ranks of a problem the first 1024 are told.
std::string EventLine(const EventHead& head, const JobEvent& event);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_EVENT_LINE_H_
