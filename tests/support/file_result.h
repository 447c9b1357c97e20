// What became of the test cases of one source file.
#ifndef DDPRUN_TESTS_SUPPORT_FILE_RESULT_H_
#define DDPRUN_TESTS_SUPPORT_FILE_RESULT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::testing {

// kRunning remains where the process ended within the case.
enum class CaseState : uint32_t { kNotRun, kRunning, kPassed, kFailed };

struct CaseResult {
  std::string name;
  CaseState state = CaseState::kNotRun;
  double seconds = 0;
  std::string failure;                     // what the failed assertions said
  std::optional<std::string> skip_reason;  // of a case that passed by SkipTest
};

struct FileResult {
  std::string file;
  std::vector<CaseResult> cases;
  double seconds = 0;
  // How its process ended, where that was not as it should: "ended by SIGSEGV". Else empty.
  std::string bad_end;
};

struct CaseCounts {
  int passed = 0;  // those that were skipped among them, as doctest counts
  int skipped = 0;
  int failed = 0;
};

// A case that was not run has failed. A bad end after the last case counts as one failed case.
CaseCounts CountCases(const FileResult& result);

// True where no case can be blamed for the bad end: it came before the first or after the last one.
bool HasBadEndOutsideCases(const FileResult& result);

// "tests/a_test.cc: 12 passed, 1 failed, 3.2 s", and how it ended, in which case.
std::string FileLine(const FileResult& result);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_FILE_RESULT_H_
