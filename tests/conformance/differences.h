// The table of intended differences between torchrun and ddprun, and the judge that knows no
// others.
#ifndef DDPRUN_TESTS_CONFORMANCE_DIFFERENCES_H_
#define DDPRUN_TESTS_CONFORMANCE_DIFFERENCES_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::testing {

// What was seen of one launcher's run, by field; a field that it lacks reads as kAbsent.
using Observed = std::map<std::string, std::string>;
inline constexpr char kAbsent[] = "(absent)";

// One row: in these scenarios the field reads so under torchrun and so under ddprun. '*' in a
// value stands for any text. A scenario "*" permits the difference anywhere; those named must show
// it.
struct Difference {
  std::vector<std::string> scenarios;
  std::string field;
  std::string torchrun;
  std::string ddprun;
  std::string why;
};

// Whether `text` is what the pattern says, in which '*' stands for any text.
bool Matches(std::string_view pattern, std::string_view text);

// What was seen of the field, kAbsent included.
std::string ValueOf(const Observed& observed, const std::string& field);

// Rows are separated by empty lines; '#' begins a comment line. A row is
//
//   [scenario, scenario] field
//   torchrun: value
//   ddprun: value
//   why: text
//
// with more lines of any of the three indented below it. `problems` gets what cannot be read.
std::vector<Difference> ParseDifferences(const std::string& text,
                                         std::vector<std::string>* problems);

// What is wrong with a scenario's results, a line each: a difference that no row lists, and a row
// that is not as it says any more.
std::vector<std::string> Judge(const std::vector<Difference>& table, const std::string& scenario,
                               const Observed& torchrun, const Observed& ddprun);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_CONFORMANCE_DIFFERENCES_H_
