#include "tools/reference_program/tables.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/text.h"
#include "launcher/cli/variable_table.h"
#include "launcher/metrics/metric_series.h"
#include "launcher/process/exit_status.h"
#include "tools/reference_program/events.h"
#include "tools/reference_program/markdown.h"

namespace ddprun::reference {
namespace {

using namespace launcher;

std::string NamesOf(const OptionRow& row) {
  const std::string name = Code(Dashed(row.name));
  return row.letter == 0 ? name : absl::StrCat(name, ", `-", std::string(1, row.letter), "`");
}

std::string ValueOf(const OptionRow& row) {
  if (row.is_flag()) return "";
  return Code(row.may_stand_alone ? absl::StrCat("[=", row.value, "]") : row.value);
}

std::string OptionsText() {
  std::vector<std::string_view> groups;
  for (const OptionRow& row : OptionTable()) {
    const auto found = std::find(groups.begin(), groups.end(), row.group);
    if (found == groups.end()) groups.push_back(row.group);
  }
  std::vector<std::string> parts;
  for (const std::string_view group : groups) {
    std::string part = absl::StrCat("## ", std::string(group), "\n\n",
                                    Head({"option", "value", "meaning", "variable"}));
    for (const OptionRow& row : OptionTable()) {
      if (group != row.group || row.old != nullptr) continue;
      std::vector<std::string> variables = VariablesOf(row);
      for (std::string& name : variables) name = Code(name);
      part += Row({NamesOf(row), ValueOf(row), Prose(row.help), absl::StrJoin(variables, ", ")});
    }
    parts.push_back(std::move(part));
  }
  return absl::StrJoin(parts, "\n");
}

// Of a job, with the same text.
bool IsOfJob(const OptionRow& row) {
  const OptionRow* same = FindOption(row.name);
  return same != nullptr && std::string_view(same->help) == row.help;
}

std::string UsageOf(const CommandRow& command) {
  std::string usage = absl::StrCat("ddprun ", command.name);
  const char* word = command.subject != nullptr ? command.subject : command.argument;
  if (word != nullptr) {
    const bool may_lack = command.subject == nullptr || ChoicesIn(word).size() == 1;
    absl::StrAppend(&usage, may_lack ? " [" : " ", word, may_lack ? "]" : "");
  }
  return command.options.size() == 1 ? usage : usage + " [options]";  // --help alone
}

std::string CommandText(const CommandRow& command) {
  std::string table;
  std::vector<std::string> of_job;
  for (const OptionRow& row : command.options) {
    if (std::string_view(row.name) == "help" || row.old != nullptr) continue;
    if (IsOfJob(row)) {
      of_job.push_back(NamesOf(row));
    } else {
      table += Row({NamesOf(row), ValueOf(row), Prose(row.help)});
    }
  }
  std::string text = absl::StrCat("## ", command.name, "\n\n", Code(UsageOf(command)), "\n\n",
                                  Wrapped(Prose(command.help)));
  if (!table.empty()) {
    absl::StrAppend(&text, "\n", Head({"option", "value", "meaning"}), table);
  }
  if (!of_job.empty()) {
    absl::StrAppend(&text, "\n",
                    Wrapped(absl::StrCat(
                        "[As for a job](cli-options.md): ", absl::StrJoin(of_job, ", "), ".")));
  }
  return text;
}

std::string CommandsText() {
  std::vector<std::string> parts;
  for (const CommandRow& command : CommandTable()) parts.push_back(CommandText(command));
  return absl::StrJoin(parts, "\n");
}

std::string VariablesText() {
  std::vector<std::string> parts;
  for (const VariableGroup& group : VariableTable()) {
    const bool has_fallbacks = std::any_of(group.rows.begin(), group.rows.end(),
                                           [](const auto& row) { return *row.fallback != '\0'; });
    std::vector<std::string> names = {"variable", "read by", "meaning"};
    if (has_fallbacks) names.emplace_back("without it");
    std::string part =
        absl::StrCat("## ", group.title, "\n\n", Wrapped(group.intro), "\n", Head(names));
    for (const VariableRow& row : group.rows) {
      std::vector<std::string> cells = {Code(row.name), row.by, row.meaning};
      if (has_fallbacks) cells.emplace_back(row.fallback);
      part += Row(cells);
    }
    parts.push_back(std::move(part));
  }
  return absl::StrJoin(parts, "\n");
}

std::string ExitCodesText() {
  std::string text = Head({"code", "meaning"});
  for (const ExitCodeMeaning& row : kExitCodes) {
    std::string_view meaning = row.meaning;
    std::string code = absl::StrCat(row.code);
    if (row.code == kExitSignalBase) {
      const size_t colon = meaning.find(": ");
      code = std::string(meaning.substr(0, colon));
      meaning.remove_prefix(colon + 2);
    }
    text += Row({code, Prose(meaning)});
  }
  return text;
}

std::string MetricRow(const Metric& metric, const char* labels, const std::string& more = "") {
  std::string help = metric.help;
  help.pop_back();  // the full stop
  return Row({Code(metric.name), metric.type == MetricType::kCounter ? "counter" : "gauge", labels,
              Prose(help) + more});
}

template <typename View>
std::string MetricRows(absl::Span<const Series<View>> all, const char* labels) {
  std::string rows;
  for (const Series<View>& series : all) rows += MetricRow(series.metric, labels);
  return rows;
}

// With the values of the label `kind`.
std::string KindRows() {
  JobView job;
  job.effective_share = 0;
  job.rounds.emplace_back();
  std::string rows;
  for (const KindSeries& series : JobKindSeries()) {
    std::vector<std::string> kinds;
    for (const auto& [kind, value] : series.values(job)) kinds.push_back(Code(kind));
    rows += MetricRow(series.metric, "kind", ": " + absl::StrJoin(kinds, ", "));
  }
  return rows;
}

}  // namespace

std::vector<Block> Blocks() {
  const std::string folder = "docs/reference/", metrics = folder + "metrics.md";
  const std::string head = Head({"metric", "type", "labels", "meaning"});
  return {
      {folder + "cli-options.md", "options", OptionsText()},
      {folder + "cli-commands.md", "commands", CommandsText()},
      {folder + "environment.md", "variables", VariablesText()},
      {folder + "exit-codes.md", "exit codes", ExitCodesText()},
      {metrics, "job", head + KindRows() + MetricRows(JobSeries(), "")},
      {metrics, "nodes", head + MetricRows(NodeSeries(), "node")},
      {metrics, "ranks", head + MetricRows(RankSeries(), "node, rank")},
      {metrics, "GPUs", head + MetricRows(GpuSeries(), "node, gpu")},
      {folder + "events.md", "events", EventsText()},
  };
}

}  // namespace ddprun::reference
