#include "tests/conformance/recording.h"

#include <algorithm>
#include <sstream>

namespace ddprun::testing {
namespace {

constexpr char kAsked[] = "asked";
constexpr char kBetween[] = " | ";
constexpr char kIndent[] = "  ";

std::vector<std::string> PartsOf(const std::string& value) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end = value.find(kBetween); end != value.npos; end = value.find(kBetween, begin)) {
    parts.push_back(value.substr(begin, end - begin));
    begin = end + std::string(kBetween).size();
  }
  parts.push_back(value.substr(begin));
  return parts;
}

std::string Joined(const std::vector<std::string>& parts) {
  std::string value;
  for (const std::string& part : parts) value += (&part == &parts.front() ? "" : kBetween) + part;
  return value;
}

std::string FieldText(const std::string& field, const std::string& value) {
  const std::vector<std::string> parts = PartsOf(value);
  if (value.empty()) return field + ":\n";
  if (parts.size() == 1) return field + ": " + value + "\n";
  std::string text = field + ":\n";
  for (const std::string& part : parts) text += kIndent + part + "\n";
  return text;
}

// "field: value", "field:"
bool ReadField(const std::string& line, std::string* field, std::string* value) {
  const size_t colon = line.find(": ");
  if (colon == line.npos && (line.empty() || line.back() != ':')) return false;
  *field = line.substr(0, colon == line.npos ? line.size() - 1 : colon);
  *value = colon == line.npos ? "" : line.substr(colon + 2);
  return true;
}

bool Names(const Difference& row, const std::string& scenario, const std::string& field) {
  return row.field == field &&
         std::count(row.scenarios.begin(), row.scenarios.end(), scenario) != 0;
}

}  // namespace

std::string ShellLine(const std::vector<std::string>& words) {
  constexpr char kPlain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%{}";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

std::string RecordingText(const std::string& version, const Recording& recording) {
  std::string text =
      "# What torchrun of PyTorch " + version + " did. Written by tests/conformance/record.\n";
  text += FieldText(kAsked, Joined(recording.asked));
  for (const auto& [field, value] : recording.seen) text += FieldText(field, value);
  return text;
}

std::optional<Recording> ParseRecording(const std::string& text, std::string* problem) {
  Observed fields;
  std::string field;
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind(kIndent, 0) == 0 && !field.empty()) {
      parts.push_back(line.substr(std::string(kIndent).size()));
      fields[field] = Joined(parts);
      continue;
    }
    if (line.rfind('#', 0) == 0) continue;
    std::string value;
    if (!ReadField(line, &field, &value)) {
      *problem = "neither a field nor a line of one: '" + line + "'";
      return std::nullopt;
    }
    if (!fields.emplace(field, value).second) {
      *problem = "'" + field + "' stands there twice";
      return std::nullopt;
    }
    parts.clear();
  }
  const auto asked = fields.find(kAsked);
  if (asked == fields.end()) {
    *problem = "it does not say what was asked";
    return std::nullopt;
  }
  Recording recording;
  if (!asked->second.empty()) recording.asked = PartsOf(asked->second);
  fields.erase(asked);
  recording.seen = std::move(fields);
  return recording;
}

Observed WithoutExcused(const std::vector<Difference>& table, const std::string& scenario,
                        Observed seen) {
  for (const Difference& row : table) {
    const auto value = seen.find(row.field);
    if (value == seen.end() || !Names(row, scenario, row.field)) continue;
    if (row.torchrun.find('*') == row.torchrun.npos) continue;
    if (Matches(row.torchrun, value->second)) value->second = row.torchrun;
  }
  return seen;
}

std::vector<std::string> Changes(const std::vector<Difference>& table, const std::string& scenario,
                                 const Observed& kept, const Observed& anew) {
  std::vector<std::string> changes;
  Observed all = kept;
  all.insert(anew.begin(), anew.end());
  for (const auto& [field, unused] : all) {
    const std::string before = ValueOf(kept, field);
    const std::string now = ValueOf(anew, field);
    bool is_excused = false;
    bool has_own_row = false;
    for (const Difference& row : table) {
      has_own_row |= Names(row, scenario, field);
      is_excused |=
          Names(row, "*", field) && (Matches(row.torchrun, before) || Matches(row.torchrun, now));
    }
    if (before == now || (is_excused && !has_own_row)) continue;
    changes.push_back("[" + scenario + "] " + field + ": torchrun does otherwise than recorded" +
                      "\n  recorded: " + before + "\n  now: " + now);
  }
  return changes;
}

}  // namespace ddprun::testing
