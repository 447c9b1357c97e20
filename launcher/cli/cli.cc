#include "launcher/cli/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/text.h"
#include "launcher/process/exit_status.h"

namespace ddprun::launcher {
namespace {

constexpr std::array<std::string_view, 8> kReserved = {"status", "stop",  "dump",  "top",
                                                       "logs",   "token", "check", "bench"};

// CLI11 prints the description first, and an example says more than any list.
constexpr char kDescription[] =
    "Examples:\n"
    "  ddprun --nproc_per_node=4 ./train --epochs 3\n"
    "  ddprun --nnodes=2 --nproc_per_node=4 --rdzv_endpoint=HOST:29400 ./train   # on each node\n"
    "  ddprun doctor   # what this machine has for training, and what it lacks\n"
    "\n"
    "Starts one process for each GPU, gives each its rank, watches them, restarts the job when\n"
    "something dies and says what died first. PROGRAM is any executable; a name ending in .py\n"
    "runs under $PYTHON_EXEC or python3.\n";

constexpr char kFooter[] =
    "Options may be written with dashes or underscores; the last of several wins. Everything\n"
    "after PROGRAM is the program's. PET_<NAME> in the environment stands in for an option,\n"
    "DDPRUN_LOG_LEVEL=info or =debug tells on stderr what ddprun does.\n"
    "\n"
    "Exit codes: that of the first worker that failed (128+n: killed by signal n); else";

std::string Footer() {
  std::string text = absl::StrCat("\n", kFooter);
  for (const ExitCodeMeaning& row : kExitCodes) {
    const std::string code = row.code == kExitSignalBase ? "" : absl::StrFormat("%-3d  ", row.code);
    absl::StrAppend(&text, "\n  ", code, std::string(row.meaning));
  }
  return text;
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: ddprun [options] PROGRAM [ARGS...]\n";
  }
};

// CLI11's view of the option table. It is given options only: it cannot stop at the program and
// still call an unknown option in front of it an error, so SplitAtProgram has cut before.
class Parser {
 public:
  Parser() : app_(kDescription, "ddprun") {
    app_.set_help_flag();
    app_.formatter(std::make_shared<HelpFormatter>());
    app_.footer(Footer());
    for (const OptionRow& row : OptionTable()) Add(row);
  }

  std::string Help() const { return app_.help(); }

  absl::StatusOr<GivenOptions> Parse(const std::vector<OptionUse>& uses) {
    // CLI11 takes its words from the back. A value follows its option as a word of its own: an
    // empty one behind '=' would be taken for a missing one.
    std::vector<std::string> words;
    for (auto use = uses.rbegin(); use != uses.rend(); ++use) {
      if (!use->row->is_flag()) words.push_back(use->value);
      words.push_back(absl::StrCat("--", use->row->name));
    }
    try {
      app_.parse(std::move(words));
    } catch (const CLI::Error& error) {
      return absl::InvalidArgumentError(EscapeControl(error.what()));
    }
    return given_;
  }

 private:
  void Add(const OptionRow& row) {
    const std::string name(row.name);
    const std::string spellings = absl::StrCat(
        row.letter != 0 ? absl::StrCat("-", std::string(1, row.letter), ",") : "", "--", name);
    const auto remember = [this, name](std::string value) {
      given_[name] = {.text = std::move(value), .source = "--" + name};
    };
    CLI::Option* option = row.is_flag()
                              ? app_.add_flag_callback(
                                    spellings, [remember] { remember("1"); }, row.help)
                              : app_.add_option_function<std::string>(spellings, remember, row.help)
                                    ->type_name(row.value);
    option->group(row.group)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }

  CLI::App app_;
  GivenOptions given_;
};

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

absl::StatusOr<ParseResult> ParseDoctor(std::span<const std::string> args) {
  const absl::StatusOr<DoctorOptions> options = ParseDoctorOptions(args);
  if (!options.ok()) return options.status();
  if (options->is_help) return PrintText{kDoctorHelp};
  return *options;
}

absl::StatusOr<ParseResult> Parse(std::span<const std::string> args,
                                  const Environment& environment) {
  if (!args.empty() && args[0] == "doctor") return ParseDoctor(args.subspan(1));
  if (!args.empty() && std::find(kReserved.begin(), kReserved.end(), args[0]) != kReserved.end()) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(args[0]),
                                                   " is reserved for a later command; to run a "
                                                   "program of that name write ./",
                                                   args[0]));
  }
  absl::StatusOr<SplitCommandLine> split = SplitAtProgram(args);
  if (!split.ok()) return split.status();
  Parser parser;
  if (!split->options.empty()) {
    const std::string_view last = split->options.back().row->name;
    if (last == "help") return PrintText{parser.Help()};
    if (last == "version") return PrintText{absl::StrCat("ddprun ", kVersion, "\n")};
  }
  absl::StatusOr<GivenOptions> given = parser.Parse(split->options);
  if (!given.ok()) return given.status();
  AddVariables(environment, *given);
  absl::StatusOr<LaunchConfig> config = BuildLaunchConfig(*given, environment.machine);
  if (!config.ok()) return config.status();
  if (split->program.empty()) {
    return absl::InvalidArgumentError(
        "no program given; expected ddprun [options] PROGRAM [ARGS...], see ddprun --help");
  }
  config->program = split->program.front();
  config->args.assign(split->program.begin() + 1, split->program.end());
  const std::vector<std::string> warnings = WarningsAbout(environment);
  config->warnings.insert(config->warnings.end(), warnings.begin(), warnings.end());
  return ParseResult(*std::move(config));
}

}  // namespace

absl::StatusOr<ParseResult> ParseCommandLine(int argc, const char* const* argv,
                                             const Environment& environment) {
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  try {
    return Parse(args, environment);
  } catch (const std::exception& error) {
    // CLI11 throws std:: exceptions of its own when its set-up is wrong.
    return absl::InternalError(absl::StrCat("reading the command line: ", error.what()));
  }
}

}  // namespace ddprun::launcher
