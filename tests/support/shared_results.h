// The results of a file's cases in memory shared by the process that runs them and its parent: no
// descriptor that a test could close, and nothing lost when the process is killed.
#ifndef DDPRUN_TESTS_SUPPORT_SHARED_RESULTS_H_
#define DDPRUN_TESTS_SUPPORT_SHARED_RESULTS_H_

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "tests/support/file_result.h"

namespace ddprun::testing {

// Made by the parent before it forks; the child writes, then the parent reads, once the child has
// ended. The cases are numbered from 0.
class SharedResults {
 public:
  explicit SharedResults(size_t count);
  ~SharedResults();
  SharedResults(const SharedResults&) = delete;
  SharedResults& operator=(const SharedResults&) = delete;

  void Start(size_t index);
  // What a failed assertion says; from any thread. What does not fit is cut.
  void AddFailure(size_t index, std::string_view text);
  void Skip(size_t index, std::string_view reason);
  // A case that never ends stays kRunning.
  void End(size_t index, bool has_passed, double seconds);
  // All cases have ended; the process goes on to exit with `exit_code`.
  void Finish(int exit_code);

  // The time of a case that still runs is that since its start.
  CaseResult Read(size_t index) const;
  // Nothing where the process did not get to its end.
  std::optional<int> exit_code() const;

 private:
  struct Slot;
  struct Header;
  Slot& slot(size_t index) const;

  const size_t size_;
  void* const memory_;
  std::mutex mutex_;  // of the child's threads
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_SHARED_RESULTS_H_
