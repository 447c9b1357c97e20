// What the check found: a table for people, JSON for programs.
#ifndef DDPRUN_TOOLS_GPU_CHECK_PROGRAM_REPORT_H_
#define DDPRUN_TOOLS_GPU_CHECK_PROGRAM_REPORT_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::gpu_check {

// kMissed: it works, but a target of speed was missed; like kNotRun no failure.
enum class Verdict { kOk, kMissed, kNotRun, kFailed };

struct Result {
  Verdict verdict = Verdict::kOk;
  std::string text;                      // one line: figures, or why not
  std::map<std::string, double> values;  // the same for programs
  std::string log;                       // output: the end of what failed, or a table
};

struct Row {
  std::string name;
  Result result;
  double seconds = 0;
};

inline Result Failed(std::string why) { return {Verdict::kFailed, std::move(why)}; }
inline Result NotRun(std::string why) { return {Verdict::kNotRun, std::move(why)}; }

const char* Name(Verdict verdict);
// A line of the table.
std::string Line(const Row& row);
std::string ToJson(const std::map<std::string, std::string>& machine, const std::vector<Row>& rows,
                   int exit_code);

}  // namespace ddprun::gpu_check

#endif  // DDPRUN_TOOLS_GPU_CHECK_PROGRAM_REPORT_H_
