#include "tests/conformance/differences.h"

#include <algorithm>
#include <set>
#include <sstream>

namespace ddprun::testing {
namespace {

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// "[one, two] field"; false when the line is nothing of the kind.
bool ReadHead(const std::string& line, Difference* row) {
  const size_t end = line.find(']');
  if (line.empty() || line[0] != '[' || end == std::string::npos) return false;
  std::stringstream names(line.substr(1, end - 1));
  for (std::string name; std::getline(names, name, ',');) row->scenarios.push_back(Trimmed(name));
  row->field = Trimmed(line.substr(end + 1));
  return !row->scenarios.empty() && !row->field.empty();
}

// The member of `row` that the line begins, and the rest of the line in `value`; else null.
std::string* ReadKey(const std::string& line, Difference* row, std::string* value) {
  const size_t colon = line.find(':');
  if (colon == std::string::npos) return nullptr;
  const std::string key = line.substr(0, colon);
  *value = Trimmed(line.substr(colon + 1));
  if (key == "torchrun") return &row->torchrun;
  if (key == "ddprun") return &row->ddprun;
  if (key == "why") return &row->why;
  return nullptr;
}

// One row from its lines; what it lacks, or nothing.
std::string ReadRow(const std::vector<std::string>& lines, Difference* row) {
  if (!ReadHead(lines.front(), row)) return "expected [scenario, ...] field";
  std::string* member = nullptr;
  for (size_t i = 1; i < lines.size(); ++i) {
    std::string value = Trimmed(lines[i]);
    if (lines[i][0] != ' ') {
      member = ReadKey(lines[i], row, &value);
      if (member == nullptr) return "unknown line '" + lines[i] + "'";
    } else if (member == nullptr) {
      return "a line of nothing: '" + lines[i] + "'";
    }
    if (!member->empty()) *member += ' ';
    *member += value;
  }
  if (row->torchrun.empty() || row->ddprun.empty() || row->why.empty()) {
    return "torchrun:, ddprun: and why: are needed";
  }
  return "";
}

bool Names(const Difference& row, const std::string& scenario) {
  return std::count(row.scenarios.begin(), row.scenarios.end(), scenario) != 0;
}

// Whether the scenario has a row of its own for the field of a general one.
bool HasOwnRow(const std::vector<Difference>& table, const std::string& scenario,
               const std::string& field) {
  return std::any_of(table.begin(), table.end(), [&](const Difference& row) {
    return row.field == field && Names(row, scenario);
  });
}

std::string Say(const std::string& scenario, const std::string& field, const std::string& what,
                const std::string& torchrun, const std::string& ddprun) {
  return "[" + scenario + "] " + field + ": " + what + "\n  torchrun: " + torchrun +
         "\n  ddprun: " + ddprun;
}

}  // namespace

bool Matches(std::string_view pattern, std::string_view text) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == text;
  if (text.substr(0, star) != pattern.substr(0, star)) return false;
  for (size_t skipped = star; skipped <= text.size(); ++skipped) {
    if (Matches(pattern.substr(star + 1), text.substr(skipped))) return true;
  }
  return false;
}

std::string ValueOf(const Observed& observed, const std::string& field) {
  const auto found = observed.find(field);
  return found == observed.end() ? kAbsent : found->second;
}

std::vector<Difference> ParseDifferences(const std::string& text,
                                         std::vector<std::string>* problems) {
  std::vector<Difference> table;
  std::vector<std::string> lines;
  const auto finish_row = [&] {
    if (lines.empty()) return;
    Difference row;
    const std::string problem = ReadRow(lines, &row);
    if (!problem.empty()) problems->push_back(lines.front() + ": " + problem);
    if (problem.empty()) table.push_back(std::move(row));
    lines.clear();
  };
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (Trimmed(line).empty()) {
      finish_row();
    } else if (line[0] != '#') {
      lines.push_back(line);
    }
  }
  finish_row();
  return table;
}

std::vector<std::string> Judge(const std::vector<Difference>& table, const std::string& scenario,
                               const Observed& torchrun, const Observed& ddprun) {
  std::vector<std::string> complaints;
  std::set<std::string> listed;
  for (const Difference& row : table) {
    const bool is_named = Names(row, scenario);
    if (!is_named && !Names(row, "*")) continue;
    const std::string theirs = ValueOf(torchrun, row.field);
    const std::string ours = ValueOf(ddprun, row.field);
    if (!is_named && (theirs == ours || HasOwnRow(table, scenario, row.field))) continue;
    if (!listed.insert(row.field).second) {
      complaints.push_back(Say(scenario, row.field, "listed twice", row.torchrun, row.ddprun));
    } else if (theirs == ours) {
      complaints.push_back(
          Say(scenario, row.field, "the listed difference does not show", theirs, ours));
    } else if (!Matches(row.torchrun, theirs) || !Matches(row.ddprun, ours)) {
      complaints.push_back(Say(scenario, row.field, "differs otherwise than listed", theirs, ours));
    }
  }
  Observed all = torchrun;
  all.insert(ddprun.begin(), ddprun.end());
  for (const auto& [field, value] : all) {
    const std::string theirs = ValueOf(torchrun, field);
    const std::string ours = ValueOf(ddprun, field);
    if (theirs == ours || listed.count(field) != 0) continue;
    complaints.push_back(Say(scenario, field, "a difference that is not listed", theirs, ours));
  }
  return complaints;
}

}  // namespace ddprun::testing
