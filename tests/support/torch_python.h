// The PyTorch that tests compare with or run: that of $DDPRUN_TEST_PYTHON, else of python3.
#ifndef DDPRUN_TESTS_SUPPORT_TORCH_PYTHON_H_
#define DDPRUN_TESTS_SUPPORT_TORCH_PYTHON_H_

#include <chrono>
#include <string>

namespace ddprun::testing {

struct TorchPython {
  std::string python;    // its path; empty: there is none
  std::string torchrun;  // beside it
  std::string folder;    // of both
  std::string version;   // "2.13.0", without what its build adds
  std::string problem;   // why there is none
};

// A program's that imports it: that takes seconds, on a busy machine a minute and more.
inline constexpr std::chrono::seconds kTorchPatience{240};

// Looked for once.
const TorchPython& FindTorchPython();

// How a case ends that finds none: skipped, or failed where DDPRUN_TEST_MUST_HAVE_TORCH is set.
// Use as `return SkipWithoutTorch();`.
void SkipWithoutTorch();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_TORCH_PYTHON_H_
