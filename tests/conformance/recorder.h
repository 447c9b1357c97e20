// Where the recordings are kept: recorded/torch-<version>/<scenario>.txt.
//
// $DDPRUN_TEST_RECORD says what is done with them. Unset: they stand for torchrun, which is not
// started. "check": torchrun is run again, and fails where it does otherwise than recorded.
// "write": it is run again, and such recordings are replaced.
//
// The PyTorch version is $DDPRUN_TEST_TORCH_VERSION, else kRecordedVersion; that of the real
// PyTorch where it is run.
#ifndef DDPRUN_TESTS_CONFORMANCE_RECORDER_H_
#define DDPRUN_TESTS_CONFORMANCE_RECORDER_H_

#include <optional>
#include <string>
#include <vector>

#include "tests/conformance/recording.h"

namespace ddprun::testing {

// The one that tools/setup --with-torch installs.
inline constexpr char kRecordedVersion[] = "2.13.0";

// Whether torchrun is run. What is wrong with the variables or lacks a PyTorch ends the case.
bool IsRecording();

// What torchrun did when it was asked this. nullopt: no recording fits, which is a failed check.
// REQUIRES: !IsRecording(); no other call of this program has named the scenario.
std::optional<Observed> Recorded(const std::string& scenario,
                                 const std::vector<std::string>& asked);

// Checks or writes. REQUIRES: IsRecording(); likewise.
void Record(const std::string& scenario, Recording anew);

// differences.txt.
const std::vector<Difference>& DifferenceTable();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_CONFORMANCE_RECORDER_H_
