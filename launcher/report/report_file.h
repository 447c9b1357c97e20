// --report_file: the end of the job for programs. docs/report_file.md has the fields.
#ifndef DDPRUN_LAUNCHER_REPORT_REPORT_FILE_H_
#define DDPRUN_LAUNCHER_REPORT_REPORT_FILE_H_

#include <string>

#include "launcher/report/job_record.h"

namespace ddprun::launcher {

// JSON, indented, with a newline at its end. Bytes of workers that are not UTF-8 become U+FFFD.
std::string RenderReportFile(const JobRecord& record);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_REPORT_FILE_H_
