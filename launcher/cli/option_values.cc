#include "launcher/cli/option_values.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/text.h"
#include "launcher/process/exit_status.h"

namespace ddprun::launcher {
namespace {

using absl::InvalidArgumentError;

constexpr size_t kMaxNameLength = 200;  // run id and role: they become parts of file names
constexpr int kMaxSeconds = 365 * 24 * 3600;
constexpr std::pair<NumaBinding, const char*> kNumaBindings[] = {
    {NumaBinding::kNode, "node"},
    {NumaBinding::kSocket, "socket"},
    {NumaBinding::kExclusive, "exclusive"},
    {NumaBinding::kCoreComplex, "core-complex"}};

// Workers are started with them ignored, TERM excepted: not what ends a program that has gone
// wrong, what a terminal sends, or what programs send themselves.
constexpr int kPreemptSignals[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGHUP, SIGURG, SIGXCPU, SIGPWR};

bool IsDigits(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

std::optional<int> DigitsUpTo(const std::string& text, int max) {
  int value = 0;
  if (!IsDigits(text) || !absl::SimpleAtoi(text, &value) || value > max) return std::nullopt;
  return value;
}

std::optional<Streams> OneStreamChoice(const std::string& text) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3') return std::nullopt;
  const int bits = text[0] - '0';
  return Streams{.out = (bits & 1) != 0, .err = (bits & 2) != 0};
}

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

bool Holds(const auto& signals, int signal) {
  return std::find(signals.begin(), signals.end(), signal) != signals.end();
}

std::string Suggestion(const std::string& name) {
  const std::string upper = absl::AsciiStrToUpper(name);
  std::vector<std::string> names;
  for (const auto& [known, number] : NumberOfName()) {
    if (Holds(kNever, number)) continue;
    if (known == "SIG" + upper) return DidYouMean(known, {known});
    names.push_back(known);
  }
  const std::string meant = DidYouMean(upper, names);
  return meant.empty() ? "; expected names such as SIGUSR1,SIGUSR2" : meant;
}

}  // namespace

absl::StatusOr<int> ParseNumber(const std::string& text, int min, int max) {
  const std::optional<int> value = DigitsUpTo(text, max);
  if (!value || *value < min) {
    return InvalidArgumentError(absl::StrCat("expected a number from ", min, " to ", max));
  }
  return *value;
}

absl::StatusOr<NodeRange> ParseNodeRange(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  std::optional<int> min, max;
  if (parts.size() <= 2) {
    min = DigitsUpTo(parts.front(), kMaxNodes);
    max = DigitsUpTo(parts.back(), kMaxNodes);
  }
  if (!min || !max || *min < 1 || *min > *max) {
    return InvalidArgumentError(
        absl::StrCat("expected N or MIN:MAX with 1 <= MIN <= MAX <= ", kMaxNodes));
  }
  return NodeRange{.min = *min, .max = *max};
}

absl::StatusOr<std::vector<int>> ParseGpus(const std::string& text) {
  std::vector<int> gpus;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::optional<int> gpu = DigitsUpTo(std::string(part), kMaxWorkersPerNode - 1);
    if (!gpu || std::find(gpus.begin(), gpus.end(), *gpu) != gpus.end()) {
      return InvalidArgumentError(
          "expected indices of GPUs after gpu:, each once, as in gpu:1,3,5");
    }
    gpus.push_back(*gpu);
  }
  return gpus;
}

absl::StatusOr<int> ParseWorkersPerNode(const std::string& text, int cpu_count) {
  if (text == "cpu") return std::min(std::max(cpu_count, 1), kMaxWorkersPerNode);
  const std::optional<int> count = DigitsUpTo(text, kMaxWorkersPerNode);
  if (!count || *count < 1) {
    return InvalidArgumentError(absl::StrCat(
        text == "xpu" ? "Intel's GPUs are not counted; " : "", "expected a number from 1 to ",
        kMaxWorkersPerNode, ", gpu, gpu:INDEX,..., auto, or cpu (", cpu_count, " here)"));
  }
  return *count;
}

const char* NumaBindingName(NumaBinding binding) {
  for (const auto& [known, name] : kNumaBindings) {
    if (known == binding) return name;
  }
  return "unknown";
}

absl::StatusOr<NumaBinding> ParseNumaBinding(const std::string& text) {
  for (const auto& [binding, name] : kNumaBindings) {
    if (text == name) return binding;
  }
  return InvalidArgumentError("expected node, socket, exclusive or core-complex");
}

absl::StatusOr<Duration> ParseSeconds(const std::string& text, bool zero_allowed) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('.', 1));
  const bool has_fraction = text.find('.') != std::string::npos;
  const std::optional<int> whole = DigitsUpTo(parts.first, kMaxSeconds);
  const bool valid = whole && (!has_fraction || IsDigits(parts.second));
  int64_t nanoseconds = 0;
  if (valid) {
    std::string fraction = parts.second.substr(0, 9);
    fraction.resize(9, '0');
    nanoseconds = int64_t{*whole} * 1000000000 + *DigitsUpTo(fraction, 999999999);
  }
  if (!valid || (nanoseconds == 0 && !zero_allowed)) {
    return InvalidArgumentError(absl::StrCat("expected seconds, ",
                                             zero_allowed ? "0" : "more than 0 and up", " to ",
                                             kMaxSeconds, " (a year), for example 30 or 0.5"));
  }
  return Duration(nanoseconds);
}

absl::StatusOr<double> ParseInterval(const std::string& text) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !(value > 0)) {
    return InvalidArgumentError("expected a number of seconds, more than 0, for example 0.1");
  }
  return value;
}

absl::StatusOr<bool> ParseFlag(const std::string& text) {
  std::string digits(absl::StripAsciiWhitespace(text));
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.erase(0, 1);
  if (!IsDigits(digits)) return InvalidArgumentError("expected a number: 0 is off, 1 is on");
  return digits.find_first_not_of('0') != std::string::npos;
}

absl::StatusOr<bool> ParseBool(const std::string& text) {
  const std::string word = absl::AsciiStrToLower(text);
  bool value = false;
  if (word == "on" || word == "off") return word == "on";
  if (absl::SimpleAtob(word, &value)) return value;
  return InvalidArgumentError("expected 1, 0, true or false");
}

absl::StatusOr<std::string> ParseInterface(const std::string& text) {
  constexpr size_t kMaxName = 15;  // the kernel's IFNAMSIZ, without the zero
  const bool is_name =
      !text.empty() && text.size() <= kMaxName && std::all_of(text.begin(), text.end(), [](char c) {
        return absl::ascii_isgraph(c) && c != '/' && c != ',' && c != ':';
      });
  if (is_name) return text;
  return InvalidArgumentError("expected the name of one network interface, as in eth0");
}

absl::StatusOr<std::string> ParseName(const std::string& text) {
  // What would be escaped in a message would also differ between two nodes.
  const bool has_control = std::any_of(text.begin(), text.end(), absl::ascii_iscntrl);
  if (has_control || EscapeControl(text) != text) {
    return InvalidArgumentError("expected printable characters in UTF-8");
  }
  if (text.size() > kMaxNameLength) {
    return InvalidArgumentError(absl::StrCat("expected at most ", kMaxNameLength, " bytes"));
  }
  return text;
}

absl::StatusOr<StreamChoice> ParseStreamChoice(const std::string& text) {
  const absl::Status wrong = InvalidArgumentError(
      "expected 0 (none), 1 (stdout), 2 (stderr), 3 (both), or one for each local rank as in "
      "0:1,12:3");
  if (const std::optional<Streams> everyone = OneStreamChoice(text)) {
    return StreamChoice{.everyone = *everyone, .by_local_rank = {}};
  }
  StreamChoice choice;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(part, absl::MaxSplits(':', 1));
    const std::optional<int> rank = DigitsUpTo(pair.first, kMaxWorkersPerNode - 1);
    const std::optional<Streams> streams = OneStreamChoice(pair.second);
    if (!rank || !streams) return wrong;
    choice.by_local_rank[*rank] = *streams;
  }
  return choice;
}

absl::StatusOr<std::set<int>> ParseLocalRanks(const std::string& text) {
  std::set<int> ranks;
  if (text.empty()) return ranks;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::optional<int> rank =
        DigitsUpTo(std::string(absl::StripAsciiWhitespace(part)), kMaxWorkersPerNode - 1);
    if (!rank) {
      return InvalidArgumentError(absl::StrCat("expected local ranks from 0 to ",
                                               kMaxWorkersPerNode - 1,
                                               " separated by commas, as in 0,1,12"));
    }
    ranks.insert(*rank);
  }
  return ranks;
}

absl::StatusOr<std::vector<std::string>> ParseLineFilters(const std::string& text) {
  if (text.empty()) return std::vector<std::string>();
  constexpr absl::string_view kComma("\0", 1);  // no argument holds one
  std::vector<std::string> filters =
      absl::StrSplit(absl::StrReplaceAll(text, {{",,", kComma}}), ',');
  for (std::string& filter : filters) {
    if (filter.empty()) {
      return InvalidArgumentError(
          "expected texts separated by commas, ,, for a comma in a text; an empty one would match "
          "every line");
    }
    absl::StrReplaceAll({{kComma, ","}}, &filter);
  }
  return filters;
}

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

absl::StatusOr<int> ParsePreemptSignal(const std::string& text) {
  for (const int signal : kPreemptSignals) {
    const std::string name = SignalName(signal);
    if (text == name || "SIG" + text == name || text == std::to_string(signal)) return signal;
  }
  return InvalidArgumentError("expected a signal among USR1, USR2, TERM, HUP, URG, XCPU or PWR");
}

const GivenValue* OptionReader::Find(const std::string& name) const {
  const auto found = given_.find(name);
  return found == given_.end() ? nullptr : &found->second;
}

const GivenValue* OptionReader::FindText(const std::string& name) const {
  const GivenValue* value = Find(name);
  return value != nullptr && !value->text.empty() ? value : nullptr;
}

std::string OptionReader::Text(const std::string& name) const {
  const GivenValue* value = Find(name);
  return value == nullptr ? "" : value->text;
}

bool OptionReader::Flag(const std::string& name) {
  bool is_set = false;
  Into(name, is_set, ParseFlag);
  return is_set;
}

void OptionReader::Refuse(const GivenValue& given, absl::string_view accepted) {
  Fail(InvalidArgumentError(
      absl::StrCat(given.source, " ", Quoted(WithoutPasswords(given.text)), ": ", accepted)));
}

}  // namespace ddprun::launcher
