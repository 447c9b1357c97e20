#include "launcher/check/self_check.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/check/check_child.h"
#include "launcher/check/check_stage.h"
#include "launcher/check/check_verdict.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/site_file.h"

namespace ddprun::launcher {
namespace {

// A node that is only noisy should not cost a job its start.
constexpr char kTolerance[] = "--tolerance=2";
// One stage alone and three with others, those of a second look, and what is between them.
constexpr int kStages = 5 + kRoundsAgain;

// "4 ranks: all are well", of the last line; "" where it did not come to that.
std::string SentenceIn(const std::string& text) {
  constexpr absl::string_view kMark = "check: ";
  std::string sentence;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, kMark)) sentence = std::string(line.substr(kMark.size()));
  }
  return sentence;
}

}  // namespace

SelfCheckProgram SelfCheckOf(const std::string& executable, int workers,
                             const std::string& visible_devices, const Environment& environment) {
  std::vector<std::string> variables;
  for (const std::string& variable : environment.variables) {
    const bool is_option =
        variable.starts_with("PET_") || variable.starts_with(kSiteFileVariable) ||
        FindOptionOfVariable(std::string_view(variable).substr(0, variable.find('='))) != nullptr;
    const bool is_replaced =
        !visible_devices.empty() && variable.starts_with("CUDA_VISIBLE_DEVICES=");
    if (!is_option && !is_replaced) variables.push_back(variable);
  }
  variables.push_back(absl::StrCat(kSiteFileVariable, "="));  // nor those of the site
  if (!visible_devices.empty()) variables.push_back("CUDA_VISIBLE_DEVICES=" + visible_devices);
  return {.argv = {executable, "check", "--standalone", "--no-cluster", kTolerance,
                   absl::StrCat("--nproc-per-node=", workers)},
          .environment = std::move(variables)};
}

absl::Status CheckThisNode(int workers, const std::string& visible_devices,
                           const Environment& environment) {
  SelfCheckProgram program = SelfCheckOf("/proc/self/exe", workers, visible_devices, environment);
  const ChildEnd end = RunChild({.argv = std::move(program.argv),
                                 .environment = std::move(program.environment),
                                 .limit = kStages * LimitsOfStage().stage,
                                 .keeps_stderr = true,
                                 .end_signal = SIGTERM});
  const std::string sentence = SentenceIn(end.text);
  if (end.exit_code == 0 && !sentence.empty()) {
    std::fprintf(stderr, "ddprun: check: %s\n", sentence.c_str());
    return absl::OkStatus();
  }
  std::fputs(end.text.c_str(), stderr);
  std::string why = sentence;
  if (why.empty()) {
    why = end.fault.empty() ? absl::StrCat("its check ended with exit code ", end.exit_code)
                            : absl::StrCat("its check ", end.fault);
  }
  return absl::UnavailableError(absl::StrCat("this node does not join: ", why));
}

}  // namespace ddprun::launcher
