// Results as JSON: for programs, and from a rank to the process that started it.
#ifndef DDPRUN_BENCH_REPORT_JSON_H_
#define DDPRUN_BENCH_REPORT_JSON_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "bench/report.h"

namespace ddprun::bench {

// One object, indented, with a newline at its end. docs/guides/scaling.md has its fields.
std::string ReportJson(const Report& report);

// What one measurement found: of a report its rows, time lines and sweep. In one line.
std::string EncodeFound(const Report& found);
// What EncodeFound wrote. DataLoss: the text is no such line.
absl::StatusOr<Report> DecodeFound(std::string_view line);

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_REPORT_JSON_H_
