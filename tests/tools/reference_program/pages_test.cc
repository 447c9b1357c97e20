// The reference pages and the product's tables: neither has what the other lacks.
#include "tools/reference_program/pages.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/text.h"
#include "launcher/cli/variable_table.h"
#include "launcher/metrics/metric_series.h"
#include "launcher/process/exit_status.h"
#include "launcher/report/event_line.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/subprocess.h"
#include "tools/reference_program/events.h"
#include "tools/reference_program/schema.h"
#include "tools/reference_program/tables.h"

namespace ddprun::reference {
namespace {

using testing::ReadFile;
using testing::Runfile;

// Of the trainer and the tools, and of Slurm, Docker, pip and others that the pages show.
const std::set<std::string> kOptionsOfOthers = {
    "checkpoint_dir",
    "check_replicas_every",
    "check_replicas_on_gpu",
    "cpus_per_task",
    "data",
    "epochs",
    "from_file",
    "gpus",
    "gpus_per_node",
    "job",
    "kill_on_bad_exit",
    "libs",
    "local_rank",
    "lr",
    "max",
    "models",
    "no_as_needed",
    "no_cache_dir",
    "nodes",
    "ntasks_per_node",
    "open_mode",
    "opt",
    "plant_drift",
    "plant_slow_rank",
    "prefix",
    "pty",
    "requeue",
    "resume",
    "rm",
    "signal",
    "steps",
    "summary_file",
    "time",
    "ubuntu",
    "use_env",
    "with_nccl",
    "zero",
    "build",
    "nightly",
    "only",
};
// Examples of misspelt names, and the rule for all.
const std::set<std::string> kNoOptions = {"nnodse", "name", "duplicate_"};
const std::set<std::string> kNoVariables = {"PET_NNODSE", "DDPRUN_HANG_TIMOUT", "PET_", "DDPRUN_"};

// The pages for users, by path.
std::map<std::string, std::string> UserPages() {
  std::map<std::string, std::string> pages;
  const std::string root = Runfile("docs");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string path = entry.path().string();
    if (!absl::EndsWith(path, ".md") || absl::StrContains(path, "/internals/")) continue;
    pages[path.substr(root.size() + 1)] = ReadFile(path);
  }
  REQUIRE(pages.size() > 30);
  return pages;
}

// What the pattern finds, each with a page that has it.
std::map<std::string, std::string> FoundIn(const std::map<std::string, std::string>& pages,
                                           const char* pattern) {
  std::map<std::string, std::string> found;
  const std::regex regex(pattern);
  for (const auto& [path, text] : pages) {
    for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) {
      found.emplace((*at)[1], path);
    }
  }
  return found;
}

std::set<std::string> OptionNames() {
  std::set<std::string> names;
  for (const auto& row : launcher::OptionTable()) names.insert(row.name);
  for (const auto& command : launcher::CommandTable()) {
    for (const auto& row : command.options) names.insert(row.name);
  }
  return names;
}

std::set<std::string> VariableNames() {
  std::set<std::string> names;
  for (const auto& row : launcher::OptionTable()) {
    for (const std::string& name : VariablesOf(row)) names.insert(name);
  }
  for (const auto& group : launcher::VariableTable()) {
    for (const auto& row : group.rows) {
      CHECK_MESSAGE(names.insert(row.name).second, std::string(row.name), " has two rows");
    }
  }
  return names;
}

TEST_CASE("reference pages: each generated part is as in the tables") {
  REQUIRE(GeneratedFiles().size() == 14);
  for (const std::string& path : GeneratedFiles()) {
    const std::string text = ReadFile(Runfile(path));
    const auto wanted = UpToDate(path, text);
    REQUIRE_MESSAGE(wanted.ok(), wanted.status());
    // Not both texts, which are long.
    const bool is_same = *wanted == text;
    CHECK_MESSAGE(is_same, path, " differs from the product's tables: run tools/reference");
  }
}

TEST_CASE("reference pages: wrong parts and wrong marks are found") {
  const std::string path = GeneratedFiles().front();
  const std::string text = ReadFile(Runfile(path));
  const auto mended = UpToDate(path, absl::StrReplaceAll(text, {{"`--tee`", "`--tea`"}}));
  REQUIRE(mended.ok());
  CHECK(*mended == text);
  CHECK(UpToDate(path, "# A page").status().message() == Contains("0 marks"));
  const auto unended = UpToDate(path, absl::StrReplaceAll(text, {{"<!-- end -->", ""}}));
  CHECK(unended.status().message() == Contains("and then '<!-- end -->'"));
  const auto foreign = UpToDate(path, absl::StrReplaceAll(text, {{"d: options", "d: opinions"}}));
  CHECK(foreign.status().message() == Contains("no table is called 'opinions'"));
}

// How many rows of generated tables begin with each name. Options of commands do not count.
std::map<std::string, int> RowsByName() {
  std::map<std::string, int> rows;
  const std::regex first("(?:^|\n)\\| `?([^`| ]+)`?[^|]*\\|");
  for (const Block& block : Blocks()) {
    if (block.name == "commands") continue;
    for (std::sregex_iterator at(block.text.begin(), block.text.end(), first), end; at != end;
         ++at) {
      ++rows[(*at)[1]];
    }
  }
  return rows;
}

TEST_CASE("reference pages: each option and variable and event and exit code has one row") {
  const std::map<std::string, int> rows = RowsByName();
  std::vector<std::string> names = {"128+n"};
  for (const auto& row : launcher::OptionTable()) {
    if (row.old == nullptr) names.push_back(launcher::Dashed(row.name));
  }
  for (const auto& group : launcher::VariableTable()) {
    for (const auto& row : group.rows) names.emplace_back(row.name);
  }
  for (const auto& row : launcher::kExitCodes) {
    if (row.code != launcher::kExitSignalBase) names.push_back(absl::StrCat(row.code));
  }
  for (const auto& event : EveryEvent()) {
    names.push_back(Json::parse(launcher::EventLine({}, event)).at("event"));
  }
  for (const auto& series : launcher::JobSeries()) names.emplace_back(series.metric.name);
  for (const auto& series : launcher::NodeSeries()) names.emplace_back(series.metric.name);
  for (const auto& series : launcher::RankSeries()) names.emplace_back(series.metric.name);
  for (const auto& series : launcher::GpuSeries()) names.emplace_back(series.metric.name);
  for (const auto& series : launcher::JobKindSeries()) names.emplace_back(series.metric.name);
  for (const std::string& name : names) {
    CHECK_MESSAGE((rows.contains(name) && rows.at(name) == 1), name);
  }
  // The heads of the tables, too, are rows that begin with a name.
  size_t heads = 0;
  for (const char* head : {"option", "variable", "code", "metric", "event", "---"}) {
    heads += rows.contains(head) ? 1 : 0;
  }
  CHECK(rows.size() == names.size() + heads);
}

TEST_CASE("reference pages: no page names an option that no program has") {
  std::set<std::string> known = OptionNames(), used;
  const auto found = FoundIn(UserPages(), "(?:^|[^a-zA-Z0-9_-])--([a-z][a-z0-9_-]*)");
  REQUIRE(found.size() > 100);
  CHECK(FoundIn(UserPages(), "(---+[a-z]+)").empty());
  for (const auto& [word, page] : found) {
    const std::string name = absl::StrReplaceAll(word, {{"-", "_"}});
    used.insert(name);
    CHECK_MESSAGE(
        known.contains(name) + kOptionsOfOthers.contains(name) + kNoOptions.contains(name) == 1,
        "docs/", page, ": --", word);
  }
  for (const std::string& name : kOptionsOfOthers) CHECK_MESSAGE(used.contains(name), name);
}

TEST_CASE("reference pages: no page names a variable or a metric that the product does not have") {
  const std::set<std::string> known = VariableNames();
  const auto variables = FoundIn(UserPages(), "((?:DDPRUN|PET)_[A-Z0-9_]*)");
  REQUIRE(variables.size() > 60);
  for (const auto& [name, page] : variables) {
    CHECK_MESSAGE(known.contains(name) != kNoVariables.contains(name), "docs/", page, ": ", name);
  }
  std::string metrics;
  for (const Block& block : Blocks()) {
    if (absl::EndsWith(block.page, "/metrics.md")) metrics += block.text;
  }
  const auto named = FoundIn(UserPages(), "(ddprun_(?:job|node|rank|gpu)_[a-z_]*[a-z])");
  REQUIRE(named.size() > 40);
  for (const auto& [name, page] : named) {
    const bool is_known = absl::StrContains(metrics, "`" + name + "`");
    CHECK_MESSAGE(is_known, "docs/", page, ": ", name);
  }
}

void AddMembers(const Json& schema, std::set<std::string>& names) {
  for (const auto& [key, value] : schema.items()) {
    if (key == "properties") {
      for (const auto& [name, member] : value.items()) names.insert(name);
    }
    if (value.is_structured()) AddMembers(value, names);
  }
}

TEST_CASE("reference pages: a page names each member of the documents that it describes") {
  for (const auto& [schema, page] :
       {std::pair<const char*, std::string>("status", "reference/status-json.md"),
        {"report-file", "reference/report-file.md"},
        {"bench", "reference/bench-json.md"},
        {"event", "reference/events.md"}}) {
    const std::string file = absl::StrCat(schema, ".schema.json");
    std::set<std::string> members;
    AddMembers(Json::parse(ReadFile(Runfile("docs/reference/schemas/" + file))), members);
    REQUIRE(members.size() > 20);
    const std::string text = UserPages().at(page);
    CHECK_MESSAGE(absl::StrContains(text, "schemas/" + file), page, ": no link to ", file);
    for (const std::string& member : members) {
      const bool is_named = absl::StrContains(text, "`" + member + "`");
      CHECK_MESSAGE(is_named, page, ": ", member);
    }
  }
}

}  // namespace
}  // namespace ddprun::reference
