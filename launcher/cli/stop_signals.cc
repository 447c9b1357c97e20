// --signals_to_handle.
#include "launcher/cli/option_values.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/text.h"
#include "launcher/process/exit_status.h"

namespace ddprun::launcher {
namespace {

constexpr int kLastNamed = 31;  // real-time signals have no names of their own
constexpr std::array kAlways = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
// KILL and STOP cannot be handled; the faults are the process's own; CHLD, CONT and PIPE are
// ddprun's.
constexpr std::array kNever = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,
                               SIGTRAP, SIGSYS,  SIGABRT, SIGCHLD, SIGCONT, SIGPIPE};

const std::map<std::string, int>& NumberOfName() {
  static const std::map<std::string, int> numbers = [] {
    std::map<std::string, int> out = {{"SIGIOT", SIGABRT}, {"SIGCLD", SIGCHLD}, {"SIGIO", SIGPOLL}};
    for (int signal = 1; signal <= kLastNamed; ++signal) out[SignalName(signal)] = signal;
    return out;
  }();
  return numbers;
}

std::string Suggestion(const std::string& name) {
  const std::string upper = absl::AsciiStrToUpper(name);
  if (NumberOfName().contains("SIG" + upper)) return DidYouMean("SIG" + upper, {"SIG" + upper});
  std::vector<std::string> names;
  for (const auto& [known, number] : NumberOfName()) names.push_back(known);
  const std::string meant = DidYouMean(upper, names);
  return meant.empty() ? "; expected names such as SIGUSR1,SIGUSR2" : meant;
}

bool Holds(const auto& signals, int signal) {
  return std::find(signals.begin(), signals.end(), signal) != signals.end();
}

}  // namespace

std::vector<int> MoreStopSignals(const std::string& text, std::vector<std::string>& warnings) {
  std::vector<int> signals;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::string name(absl::StripAsciiWhitespace(part));
    if (name.empty()) continue;
    const auto found = NumberOfName().find(name);
    if (found == NumberOfName().end()) {
      warnings.push_back(
          absl::StrCat("unknown signal ", Quoted(name), " is ignored", Suggestion(name)));
    } else if (Holds(kNever, found->second)) {
      warnings.push_back(absl::StrCat(name, " is ignored: ddprun cannot stop the job on it"));
    } else if (!Holds(kAlways, found->second) && !Holds(signals, found->second)) {
      signals.push_back(found->second);
    }
  }
  return signals;
}

}  // namespace ddprun::launcher
