#include "launcher/cli/cli.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "launcher/cli/ask_options.h"
#include "launcher/cli/cluster.h"
#include "launcher/cli/completion.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/site_file.h"
#include "launcher/cli/text.h"
#include "launcher/cli/variable_table.h"

namespace ddprun::launcher {
namespace {

// What the value is kept by: an old name gives the option of the new one.
const char* KeyOf(const OptionRow& row) {
  return row.old != nullptr ? row.old->successor : row.name;
}

// A line for each value that was given by an option's old name.
std::vector<std::string> OldNameWarnings(const GivenOptions& given) {
  std::vector<std::string> warnings;
  for (const auto& [option, value] : given) {
    const Deprecation* old = value.old_name;
    if (old == nullptr) continue;
    warnings.push_back(absl::StrCat(value.source, " is an old name: instead of ", old->old_use,
                                    " write ", old->new_use, " (deprecated since ddprun ",
                                    old->since, ")"));
  }
  return warnings;
}

// The command line wins over the variables.
void AddVariables(const Environment& environment, GivenOptions& given) {
  const auto stand_in = [&](const std::string& option, const std::string& variable,
                            const Deprecation* old = nullptr) {
    if (given.contains(option)) return;
    if (std::optional<std::string> value = environment.Get(variable)) {
      given[option] = {.text = *std::move(value), .source = variable, .old_name = old};
    }
  };
  for (const OptionRow& row : OptionTable()) {
    for (const std::string& variable : VariablesOf(row)) stand_in(KeyOf(row), variable, row.old);
  }
  stand_in("shutdown_timeout", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
}

// All else wins over the site's file, also what a scheduler says. A token or certificates of the
// user's leave no use for those of the site.
absl::Status AddSiteDefaults(const Environment& environment, GivenOptions& given) {
  const absl::StatusOr<std::map<std::string, GivenValue>> site = ParseSiteFile(environment.site);
  if (!site.ok()) return site.status();
  const std::set<std::string> trust = {"token_file", "tls_cert", "tls_key", "tls_ca"};
  const bool has_trust = environment.token || std::ranges::any_of(trust, [&](const auto& option) {
                           return given.contains(option);
                         });
  for (const OptionRow& row : OptionTable()) {
    if (has_trust && trust.contains(row.name)) continue;
    for (const std::string& variable : VariablesOf(row)) {
      const auto value = site->find(variable);
      if (value == site->end()) continue;
      const auto [entry, is_new] = given.emplace(KeyOf(row), value->second);
      if (is_new) entry->second.old_name = row.old;
    }
  }
  return absl::OkStatus();
}

// For the log; empty: nothing came from the site's file.
std::string SiteLine(const Environment& environment, const GivenOptions& given) {
  std::vector<std::string> options;
  for (const auto& [option, value] : given) {
    if (!value.is_default) continue;
    options.push_back(
        absl::StrCat(Dashed(option), "=", EscapeControl(WithoutPasswords(value.text))));
  }
  if (options.empty()) return "";
  return absl::StrCat("defaults of ", EscapeControl(environment.site.path), ": ",
                      absl::StrJoin(options, " "));
}

// The names of the variables that begin so.
std::vector<std::string> NamesWith(const std::string& beginning, const Environment& environment) {
  std::vector<std::string> names;
  for (const std::string& variable : environment.variables) {
    if (variable.starts_with(beginning)) names.push_back(variable.substr(0, variable.find('=')));
  }
  return names;
}

bool Holds(const auto& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What gives the option of that name, however its words are joined; empty: there is none.
std::string OptionMeant(const std::string& name) {
  const std::string words = absl::StrReplaceAll(name, {{"_", ""}});
  for (const OptionRow& row : OptionTable()) {
    if (row.old != nullptr) continue;
    const std::string option = absl::StrReplaceAll(row.name, {{"_", ""}});
    if (absl::AsciiStrToUpper(option) != words) continue;
    const std::vector<std::string> variables = VariablesOf(row);
    return absl::StrCat("; use ", Dashed(row.name),
                        variables.empty() ? "" : " or " + variables.back());
  }
  return "";
}

// Rank variables left over from another launcher, and names that look like a misspelt variable of
// ours.
void WarnOfVariables(const Environment& environment, std::vector<std::string>& warnings) {
  std::vector<std::string> stale;
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    if (const auto value = environment.Get(name)) {
      stale.push_back(absl::StrCat(name, "=", EscapeControl(value->substr(0, 40))));
    }
  }
  if (!stale.empty()) {
    warnings.push_back(absl::StrCat(absl::StrJoin(stale, " "),
                                    " in the environment: workers get their own values"));
  }
  // Also those that ddprun and ddp set themselves, which a ddprun in a worker inherits.
  constexpr char kPrefix[] = "DDPRUN_";
  std::vector<std::string> known;
  for (const VariableGroup& group : VariableTable()) {
    for (const VariableRow& row : group.rows) {
      const std::string_view name = row.name;
      if (name.starts_with(kPrefix)) known.emplace_back(name.substr(sizeof(kPrefix) - 1));
    }
  }
  for (const OptionRow& row : OptionTable()) {
    if (row.is_ours && row.has_variable && row.old == nullptr) {
      known.push_back(absl::AsciiStrToUpper(row.name));
    }
  }
  for (const std::string& variable : NamesWith(kPrefix, environment)) {
    // What all have in common would make any two names near.
    const std::string name = variable.substr(sizeof(kPrefix) - 1);
    if (Holds(known, name)) continue;
    std::string meant = DidYouMean(name, known, kPrefix);
    if (meant.empty()) meant = OptionMeant(name);
    if (meant.empty()) continue;  // somebody else's
    warnings.push_back(absl::StrCat("unknown variable ", Quoted(variable), " is ignored", meant));
  }
}

// PET_ variables that are none of torchrun's, which ignores them in silence. No other program's
// variables begin so.
void WarnOfOptionVariables(const Environment& environment, std::vector<std::string>& warnings) {
  std::vector<std::string> known;
  for (const OptionRow& row : OptionTable()) {
    if (row.has_variable) known.push_back(absl::AsciiStrToUpper(row.name));
  }
  for (const std::string& variable : NamesWith("PET_", environment)) {
    const std::string name = variable.substr(4), quoted = Quoted(variable);
    if (Holds(known, name)) continue;
    const OptionRow* row = FindOption(absl::AsciiStrToLower(name));
    // --logs-specs is no way out: it is refused.
    if (row != nullptr && !row->has_variable && std::string_view(row->name) != "logs_specs") {
      warnings.push_back(absl::StrCat("variable ", quoted, " is ignored; the option has none: use ",
                                      Dashed(row->name)));
    } else {
      warnings.push_back(absl::StrCat("unknown variable ", quoted, " is ignored",
                                      DidYouMean(absl::AsciiStrToUpper(name), known, "PET_")));
    }
  }
}

DoctorOptions DoctorOf(OptionReader& read) {
  DoctorOptions options = {.is_json = read.Find("json") != nullptr};
  read.Into("require", options.requires_cuda, [](const std::string& text) -> absl::StatusOr<bool> {
    if (text == "cuda") return true;
    return absl::InvalidArgumentError("expected cuda");
  });
  return options;
}

CoordinatorOptions CoordinatorOf(OptionReader& read) {
  CoordinatorOptions options = {.bind = {.host = "", .port = kDefaultRendezvousPort}};
  read.Into("bind", options.bind,
            [](const std::string& text) { return ParseListener(text, Listener::kCoordinator); });
  read.Into("rdzv_id", options.run_id, [](const std::string& text) {
    if (!text.empty()) return ParseName(text);
    return absl::StatusOr<std::string>(absl::InvalidArgumentError(
        "expected an id; without the option it is that of the first node that joins"));
  });
  options.trust = ReadTrustFiles(read);
  read.Into("on_bad_node", options.on_bad_node, ParseCommand);
  return options;
}

BenchOptions BenchOf(OptionReader& read) {
  BenchOptions options = {.is_json = read.Find("json") != nullptr};
  read.Into("world_sizes", options.ranks, ParseRankCounts);
  read.Into("seconds", options.seconds_per_row, ParseBenchSeconds);
  read.Into("device", options.is_on_gpus, [](const std::string& text) -> absl::StatusOr<bool> {
    if (text == "cpu" || text == "cuda") return text == "cuda";
    return absl::InvalidArgumentError("expected cpu or cuda");
  });
  for (auto& [name, file] :
       {std::pair("output", &options.json_file), {"html", &options.html_file}}) {
    read.Into(name, *file, [](const std::string& text) -> absl::StatusOr<std::string> {
      if (!text.empty()) return text;
      return absl::InvalidArgumentError("expected a file's path");
    });
  }
  return options;
}

// Variables and defaults of options that the command does not have.
void EraseOthers(CommandLine& line) {
  if (line.command == nullptr) return;
  std::erase_if(line.given, [&line](const auto& given) {
    const auto has_name = [&](const OptionRow& row) { return given.first == row.name; };
    return std::none_of(line.command->options.begin(), line.command->options.end(), has_name);
  });
}

// The job of a command line, its program left empty.
absl::StatusOr<LaunchConfig> JobOf(CommandLine& line, const Environment& environment) {
  AddVariables(environment, line.given);
  EraseOthers(line);
  const absl::StatusOr<ClusterAnswer> cluster = AskCluster(environment, line.given);
  if (!cluster.ok()) return cluster.status();
  for (const auto& [option, value] : cluster->options) line.given[option] = value;
  if (absl::Status status = AddSiteDefaults(environment, line.given); !status.ok()) return status;
  EraseOthers(line);
  absl::StatusOr<LaunchConfig> config = BuildLaunchConfig(line.given, environment.machine);
  if (!config.ok()) return config.status();
  config->cluster_line = cluster->line;
  config->site_line = SiteLine(environment, line.given);
  for (std::string& warning : OldNameWarnings(line.given)) {
    config->warnings.push_back(std::move(warning));
  }
  if (!cluster->warning.empty()) config->warnings.push_back(cluster->warning);
  config->report_node = cluster->report_node;
  config->more_ports = cluster->more_ports;
  if (!cluster->is_head) config->rendezvous_options.is_host = false;
  config->cluster = PlaceInCluster(environment, config->nodes.max);
  // Otherwise a script may start ddprun on some of the nodes, or each is a job of its own.
  const bool is_job_of_step = !cluster->line.empty() && config->nodes.max > 1;
  if (!is_job_of_step) config->cluster.node = -1;
  if (std::string warning = CpuWarning(environment, *config); !warning.empty()) {
    config->warnings.push_back(std::move(warning));
  }
  WarnOfVariables(environment, config->warnings);
  WarnOfOptionVariables(environment, config->warnings);
  return config;
}

absl::StatusOr<ParseResult> CheckOf(CommandLine line, const Environment& environment) {
  absl::StatusOr<LaunchConfig> job = JobOf(line, environment);
  if (!job.ok()) return job.status();
  CheckOptions options = {.job = *std::move(job)};
  OptionReader read(line.given);
  read.Into("tolerance", options.tolerance, [](const std::string& text) -> absl::StatusOr<double> {
    const absl::StatusOr<double> times = ParseInterval(text);
    if (times.ok() && *times >= 1.1 && *times <= 100) return times;
    return absl::InvalidArgumentError("expected a number from 1.1 to 100");
  });
  options.is_json = read.Find("json") != nullptr;
  if (!read.status().ok()) return read.status();
  return options;
}

absl::StatusOr<ParseResult> HelpOf(const std::string& name) {
  const CommandRow* command = FindCommand(name);
  if (command != nullptr || name.empty()) return PrintText{HelpText(command)};
  std::vector<std::string> names;
  for (const CommandRow& row : CommandTable()) names.emplace_back(row.name);
  return absl::InvalidArgumentError(
      absl::StrCat("help ", Quoted(name), ": there is no such command", DidYouMean(name, names),
                   "; ddprun help lists them"));
}

absl::StatusOr<ParseResult> CommandOf(CommandLine line, const Environment& environment) {
  if (line.command->name == std::string_view("completion")) {
    return PrintText{CompletionText(line.subject)};
  }
  if (line.command->name == std::string_view("version")) return PrintText{VersionText()};
  if (line.command->name == std::string_view("help")) return HelpOf(line.subject);
  AddVariables(environment, line.given);
  EraseOthers(line);
  OptionReader read(line.given);
  ParseResult options = DoctorOptions();
  const std::string_view name = line.command->name;
  if (name == "doctor") {
    options = DoctorOf(read);
  } else if (name == "coordinator") {
    options = CoordinatorOf(read);
  } else if (name == "bench") {
    BenchOptions bench = BenchOf(read);
    bench.warnings = OldNameWarnings(line.given);
    options = std::move(bench);
  } else if (name == "check") {
    absl::StatusOr<ParseResult> check = CheckOf(line, environment);
    read.Fail(check.status());
    if (check.ok()) options = *std::move(check);
  } else if (name == "token") {
    options = NewTokenOptions();
  } else {
    AskOptions ask = AskOf(name, line.subject, read);
    ask.warnings = OldNameWarnings(line.given);
    options = std::move(ask);
  }
  if (read.status().ok()) return options;
  // Another task of a Slurm step tells an error without words.
  if (read.status().message().empty()) return read.status();
  return absl::InvalidArgumentError(
      absl::StrCat(line.command->name, ": ", read.status().message()));
}

absl::StatusOr<ParseResult> LaunchOf(CommandLine line, const Environment& environment) {
  // What it could print is printed by now.
  if (const auto found = line.given.find("print_completion"); found != line.given.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--print-completion ", Quoted(found->second.text), ": expected bash, zsh, tcsh or fish"));
  }
  absl::StatusOr<LaunchConfig> config = JobOf(line, environment);
  if (!config.ok()) return config.status();
  if (line.program.empty()) {
    return absl::InvalidArgumentError(
        "no program given; expected ddprun [options] PROGRAM [ARGS...], see ddprun --help");
  }
  config->program = line.program.front();
  config->args.assign(line.program.begin() + 1, line.program.end());
  if (environment.Get("KUBERNETES_SERVICE_HOST") &&
      !line.given.contains("termination_message_file")) {
    // A pod's specification may name another path, but nothing tells the container.
    config->termination_message_file = "/dev/termination-log";
    config->is_termination_file_assumed = true;
  }
  return *std::move(config);
}

}  // namespace

absl::StatusOr<ParseResult> ParseCommandLine(int argc, const char* const* argv,
                                             const Environment& environment) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  absl::StatusOr<CommandLine> line = ReadCommandLine(words);
  if (!line.ok()) return line.status();
  if (!line->print.empty()) return PrintText{std::move(line->print)};
  if (line->command != nullptr) return CommandOf(*std::move(line), environment);
  return LaunchOf(*std::move(line), environment);
}

}  // namespace ddprun::launcher
