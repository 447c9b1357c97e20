// The trainer's --step_log as a pipe, by which a test holds a run where it wants it.
#ifndef DDPRUN_TESTS_EXAMPLES_TRAIN_STEP_PIPE_H_
#define DDPRUN_TESTS_EXAMPLES_TRAIN_STEP_PIPE_H_

#include <cstddef>
#include <string>

#include "rendezvous/base/unique_fd.h"

namespace ddprun::testing {

// A run cannot outpace its reader by more than the 4 KiB that the pipe holds, some 90 steps.
class StepPipe {
 public:
  // Makes the pipe at `path`.
  explicit StepPipe(const std::string& path);

  // Everything so far; takes at most `bytes` more out of the pipe.
  const std::string& Read(size_t bytes);
  // Until the lines of `count` steps have been read, in all; false when they do not come.
  bool WaitForSteps(int count);
  // From here on it holds thousands of steps: the run goes on by itself.
  void Widen();

 private:
  UniqueFd pipe_;
  std::string text_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_EXAMPLES_TRAIN_STEP_PIPE_H_
