// A recording: what torchrun was asked in a scenario and what was seen of it, as readable text. It
// stands for torchrun where no PyTorch is run.
#ifndef DDPRUN_TESTS_CONFORMANCE_RECORDING_H_
#define DDPRUN_TESTS_CONFORMANCE_RECORDING_H_

#include <optional>
#include <string>
#include <vector>

#include "tests/conformance/differences.h"

namespace ddprun::testing {

struct Recording {
  // The command of each agent. A recording of other commands does not fit.
  std::vector<std::string> asked;
  Observed seen;
};

// Words as a shell reads them.
std::string ShellLine(const std::vector<std::string>& words);

// One line a field, in their order:
//
//   field: value
//
// A value of several lines, which Observed joins by " | ", stands indented below its field. '#'
// begins a comment line. What holds newlines, or ": " in a field, is read as something else.
std::string RecordingText(const std::string& version, const Recording& recording);
// nullopt: it is none, for the reason in `problem`.
std::optional<Recording> ParseRecording(const std::string& text, std::string* problem);

// Without what is compared with nothing, and is of one machine or run alone: where a row of the
// scenario excuses any text by '*', the row's pattern stands in the value's place.
Observed WithoutExcused(const std::vector<Difference>& table, const std::string& scenario,
                        Observed seen);

// In what a new recording differs from the kept one, a line each. A difference that the table
// excuses in all scenarios ("*") is none.
std::vector<std::string> Changes(const std::vector<Difference>& table, const std::string& scenario,
                                 const Observed& kept, const Observed& anew);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_CONFORMANCE_RECORDING_H_
