#include "tests/support/file_result.h"

#include <cstdio>

namespace ddprun::testing {
namespace {

const CaseResult* RunningCase(const FileResult& result) {
  for (const CaseResult& each : result.cases) {
    if (each.state == CaseState::kRunning) return &each;
  }
  return nullptr;
}

}  // namespace

CaseCounts CountCases(const FileResult& result) {
  CaseCounts counts;
  for (const CaseResult& each : result.cases) {
    const bool has_passed = each.state == CaseState::kPassed;
    (has_passed ? counts.passed : counts.failed) += 1;
    if (has_passed && each.skip_reason) ++counts.skipped;
  }
  if (HasBadEndOutsideCases(result)) ++counts.failed;
  return counts;
}

bool HasBadEndOutsideCases(const FileResult& result) {
  return !result.bad_end.empty() && RunningCase(result) == nullptr;
}

std::string FileLine(const FileResult& result) {
  const CaseCounts counts = CountCases(result);
  int not_run = 0;
  for (const CaseResult& each : result.cases) not_run += each.state == CaseState::kNotRun;
  std::string line = result.file + ": " + std::to_string(counts.passed) + " passed, " +
                     std::to_string(counts.failed) + " failed";
  if (not_run > 0) line += " (" + std::to_string(not_run) + " of them not run)";
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, ", %.1f s", result.seconds);
  line += seconds;
  if (result.bad_end.empty()) return line;
  line += ": " + result.bad_end;
  if (const CaseResult* running = RunningCase(result)) line += " in \"" + running->name + "\"";
  return line;
}

}  // namespace ddprun::testing
