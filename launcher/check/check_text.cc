#include "launcher/check/check_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/status/status_words.h"
#include "launcher/status/text_table.h"

namespace ddprun::launcher {
namespace {

constexpr int kColumns = 100;

std::string Number(double value, const char* what) {
  return value > 0 ? absl::StrFormat("%.2f %s", value, what) : "";
}

// "2.10 GB/s with b", "failed with b"; empty: it sat out.
std::string PairCell(const CheckFacts& facts, const std::vector<PairResult>& round, int unit) {
  for (const PairResult& result : round) {
    const auto [a, b] = result.pair;
    if (unit != a && unit != b) continue;
    const std::string& name = facts.units[static_cast<size_t>(unit == a ? b : a)].name;
    const std::string other = name.substr(0, name.find(" ("));
    const std::string speed = Number(result.gb_per_s, "GB/s");
    return ShownText(absl::StrCat(speed.empty() ? "failed" : speed, " with ", other));
  }
  return "";
}

}  // namespace

std::string CheckText(const CheckFacts& facts, const CheckVerdict& verdict) {
  TextTable table;
  table.columns = {{.header = facts.is_by_node ? "NODE" : "RANK"},
                   {.header = "STATE"},
                   {.header = "ON", .importance = 3},
                   {.header = "COMPUTES", .importance = 1, .is_number = true},
                   {.header = "COPIES", .importance = 1, .is_number = true},
                   {.header = "WITHIN", .importance = 1, .is_number = true}};
  for (size_t i = 0; i < facts.rounds.size(); ++i) {
    table.columns.push_back({.header = absl::StrCat("ROUND ", i + 1), .importance = 2});
  }
  for (const UnitVerdict& row : verdict.units) {
    const UnitFacts& unit = facts.units[static_cast<size_t>(row.unit)];
    TableRow cells;
    cells.cells = {{ShownText(unit.name)},
                   {StateWord(row.state)},
                   {ShownText(unit.device)},
                   {Number(unit.pass_ms, "ms")},
                   {Number(unit.memory_gb_s, "GB/s")},
                   {Number(unit.inside_gb_s, "GB/s")}};
    for (const auto& round : facts.rounds)
      cells.cells.push_back({PairCell(facts, round, row.unit)});
    table.rows.push_back(std::move(cells));
  }
  std::string text;
  for (const std::string& line : TableLines(table, kColumns, false)) {
    absl::StrAppend(&text, line, "\n");
  }
  return absl::StrCat(text, ShownText(verdict.sentence), "\n");
}

}  // namespace ddprun::launcher
