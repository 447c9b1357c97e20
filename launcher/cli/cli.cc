#include "launcher/cli/cli.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "launcher/cli/help.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

constexpr std::array<std::string_view, 8> kReserved = {"status", "stop",  "dump",  "top",
                                                       "logs",   "token", "check", "bench"};

// Of an option that was given several times the last one wins.
GivenOptions GivenBy(const std::vector<OptionUse>& uses) {
  GivenOptions given;
  for (const OptionUse& use : uses) {
    given[use.row->name] = {.text = use.row->is_flag() ? "1" : use.value,
                            .source = absl::StrCat("--", use.row->name)};
  }
  return given;
}

// The command line wins over the PET_ variables.
void AddVariables(const Environment& environment, GivenOptions& given) {
  for (const OptionRow& row : OptionTable()) {
    if (!row.has_variable || given.contains(row.name)) continue;
    const std::string variable = VariableOf(row);
    if (std::optional<std::string> value = environment.Get(variable)) {
      given[row.name] = {.text = *std::move(value), .source = variable};
    }
  }
  constexpr char kTorchShutdown[] = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
  if (std::optional<std::string> value = environment.Get(kTorchShutdown);
      value && !given.contains("shutdown_timeout")) {
    given["shutdown_timeout"] = {.text = *std::move(value), .source = kTorchShutdown};
  }
}

// Of a PET_ variable that is none of torchrun's; `known` are those, without PET_.
std::string WarningOfVariable(const std::string& name, const std::vector<std::string>& known) {
  const std::string quoted = Quoted("PET_" + name);
  const OptionRow* row = FindOption(absl::AsciiStrToLower(name));
  // --logs_specs is no way out: it is refused.
  const bool is_option_alone =
      row != nullptr && !row->has_variable && std::string_view(row->name) != "logs_specs";
  if (is_option_alone) {
    return absl::StrCat("variable ", quoted, " is ignored; the option has none: use --", row->name);
  }
  const std::string nearest = NearestName(absl::AsciiStrToUpper(name), known);
  return absl::StrCat("unknown variable ", quoted, " is ignored",
                      nearest.empty() ? "" : absl::StrCat("; did you mean PET_", nearest, "?"));
}

// torchrun ignores them in silence. The prefix is its own, so there is no other program to spare.
void WarnOfVariables(const Environment& environment, std::vector<std::string>& warnings) {
  constexpr std::string_view kPrefix = "PET_";
  std::vector<std::string> known;
  for (const OptionRow& row : OptionTable()) {
    if (row.has_variable) known.push_back(VariableOf(row).substr(kPrefix.size()));
  }
  for (const std::string& variable : environment.variables) {
    if (variable.rfind(kPrefix, 0) != 0) continue;
    const std::string name = variable.substr(kPrefix.size(), variable.find('=') - kPrefix.size());
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    warnings.push_back(WarningOfVariable(name, known));
  }
}

absl::StatusOr<ParseResult> ParseDoctor(std::span<const std::string> args) {
  const absl::StatusOr<DoctorOptions> options = ParseDoctorOptions(args);
  if (!options.ok()) return options.status();
  if (options->is_help) return PrintText{kDoctorHelp};
  return *options;
}

}  // namespace

absl::StatusOr<ParseResult> ParseCommandLine(int argc, const char* const* argv,
                                             const Environment& environment) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const std::span<const std::string> args(words);
  if (!args.empty() && args[0] == "doctor") return ParseDoctor(args.subspan(1));
  if (!args.empty() && std::find(kReserved.begin(), kReserved.end(), args[0]) != kReserved.end()) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(args[0]),
                                                   " is reserved for a later command; to run a "
                                                   "program of that name write ./",
                                                   args[0]));
  }
  absl::StatusOr<SplitCommandLine> split = SplitAtProgram(args);
  if (!split.ok()) return split.status();
  if (!split->options.empty()) {
    const std::string_view last = split->options.back().row->name;
    if (last == "help") return PrintText{HelpText()};
    if (last == "version") return PrintText{absl::StrCat("ddprun ", kVersion, "\n")};
  }
  GivenOptions given = GivenBy(split->options);
  AddVariables(environment, given);
  absl::StatusOr<LaunchConfig> config = BuildLaunchConfig(given, environment.machine);
  if (!config.ok()) return config.status();
  if (split->program.empty()) {
    return absl::InvalidArgumentError(
        "no program given; expected ddprun [options] PROGRAM [ARGS...], see ddprun --help");
  }
  config->program = split->program.front();
  config->args.assign(split->program.begin() + 1, split->program.end());
  const std::vector<std::string> warnings = WarningsAbout(environment);
  config->warnings.insert(config->warnings.end(), warnings.begin(), warnings.end());
  WarnOfVariables(environment, config->warnings);
  return *std::move(config);
}

}  // namespace ddprun::launcher
