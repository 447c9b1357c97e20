#include "tests/support/file_result.h"

#include <doctest/doctest.h>

namespace ddprun::testing {
namespace {

FileResult Result(std::vector<CaseState> states, const std::string& bad_end = "") {
  FileResult result{.file = "tests/a_test.cc", .seconds = 3.21, .bad_end = bad_end};
  for (const CaseState state : states) {
    result.cases.push_back({.name = "case " + std::to_string(result.cases.size()), .state = state});
  }
  return result;
}

constexpr CaseState kNotRun = CaseState::kNotRun;
constexpr CaseState kRunning = CaseState::kRunning;
constexpr CaseState kPassed = CaseState::kPassed;
constexpr CaseState kFailed = CaseState::kFailed;

TEST_CASE("file_result: what has not passed has failed") {
  const CaseCounts counts =
      CountCases(Result({kPassed, kPassed, kFailed, kRunning, kNotRun}, "ended by SIGSEGV"));
  CHECK(counts.passed == 2);
  CHECK(counts.failed == 3);
  CHECK(counts.skipped == 0);
}

TEST_CASE("file_result: a skipped case counts as skipped only if it has passed") {
  FileResult result = Result({kPassed, kFailed, kPassed});
  result.cases[0].skip_reason = "no torch";
  result.cases[1].skip_reason = "no torch";
  const CaseCounts counts = CountCases(result);
  CHECK(counts.passed == 2);
  CHECK(counts.skipped == 1);
  CHECK(counts.failed == 1);
}

TEST_CASE("file_result: a bad end that no case is to blame for is a failed case") {
  CHECK(CountCases(Result({kPassed}, "exited with status 23")).failed == 1);
  CHECK(CountCases(Result({kPassed}, "exited with status 23")).passed == 1);
  CHECK(CountCases(Result({kNotRun}, "ended by SIGSEGV")).failed == 2);
  CHECK(CountCases(Result({kRunning}, "ended by SIGSEGV")).failed == 1);
  CHECK(CountCases(Result({kPassed})).failed == 0);
}

TEST_CASE("file_result: the line says what passed, how it ended, and where") {
  CHECK(FileLine(Result({kPassed, kFailed})) == "tests/a_test.cc: 1 passed, 1 failed, 3.2 s");
  CHECK(FileLine(Result({kPassed, kRunning, kNotRun}, "ended by SIGSEGV")) ==
        "tests/a_test.cc: 1 passed, 2 failed (1 of them not run), 3.2 s: ended by SIGSEGV in "
        "\"case 1\"");
  CHECK(FileLine(Result({kPassed}, "exited with status 23 after the last case")) ==
        "tests/a_test.cc: 1 passed, 1 failed, 3.2 s: exited with status 23 after the last case");
}

}  // namespace
}  // namespace ddprun::testing
