#include "launcher/cli/cli.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "launcher/cli/command_line.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

constexpr std::array<std::string_view, 8> kReserved = {"status", "stop",  "dump",  "top",
                                                       "logs",   "token", "check", "bench"};

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

// torchrun ignores them in silence. No other program's variables begin with PET_.
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

absl::StatusOr<ParseResult> DoctorOf(const GivenOptions& given) {
  const auto require = given.find("require");
  if (require != given.end() && require->second.text != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("doctor: --require ", Quoted(require->second.text), ": expected cuda"));
  }
  return DoctorOptions{.requires_cuda = require != given.end(), .is_json = given.contains("json")};
}

absl::StatusOr<ParseResult> CoordinatorOf(const GivenOptions& given) {
  CoordinatorOptions options = {.bind = {.host = "", .port = kDefaultRendezvousPort}};
  const auto wrong = [](const GivenValue& value, const absl::Status& status) {
    return absl::InvalidArgumentError(absl::StrCat("coordinator: ", value.source, " ",
                                                   Quoted(value.text), ": ", status.message()));
  };
  if (const auto found = given.find("bind"); found != given.end()) {
    const absl::StatusOr<Endpoint> bind = ParseBind(found->second.text);
    if (!bind.ok()) return wrong(found->second, bind.status());
    options.bind = *bind;
  }
  if (const auto found = given.find("rdzv_id"); found != given.end()) {
    absl::StatusOr<std::string> id = ParseName(found->second.text);
    if (id.ok() && id->empty()) {
      id = absl::InvalidArgumentError(
          "expected an id; without the option it is that of the first node that joins");
    }
    if (!id.ok()) return wrong(found->second, id.status());
    options.run_id = *id;
  }
  return options;
}

absl::StatusOr<ParseResult> LaunchOf(CommandLine line, const Environment& environment) {
  AddVariables(environment, line.given);
  absl::StatusOr<LaunchConfig> config = BuildLaunchConfig(line.given, environment.machine);
  if (!config.ok()) return config.status();
  if (line.program.empty()) {
    return absl::InvalidArgumentError(
        "no program given; expected ddprun [options] PROGRAM [ARGS...], see ddprun --help");
  }
  config->program = line.program.front();
  config->args.assign(line.program.begin() + 1, line.program.end());
  const std::vector<std::string> warnings = WarningsAbout(environment);
  config->warnings.insert(config->warnings.end(), warnings.begin(), warnings.end());
  WarnOfVariables(environment, config->warnings);
  return *std::move(config);
}

}  // namespace

absl::StatusOr<ParseResult> ParseCommandLine(int argc, const char* const* argv,
                                             const Environment& environment) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (!words.empty() &&
      std::find(kReserved.begin(), kReserved.end(), words[0]) != kReserved.end()) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(words[0]),
                                                   " is reserved for a later command; to run a "
                                                   "program of that name write ./",
                                                   words[0]));
  }
  absl::StatusOr<CommandLine> line = ReadCommandLine(words);
  if (!line.ok()) return line.status();
  if (!line->print.empty()) return PrintText{std::move(line->print)};
  if (line->command != nullptr) {
    const bool is_doctor = std::string_view(line->command->name) == "doctor";
    return is_doctor ? DoctorOf(line->given) : CoordinatorOf(line->given);
  }
  return LaunchOf(*std::move(line), environment);
}

}  // namespace ddprun::launcher
