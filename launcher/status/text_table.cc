#include "launcher/status/text_table.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "launcher/status/status_words.h"

namespace ddprun::launcher {
namespace {

constexpr int kGap = 2;
constexpr int kMaxCell = 34;
constexpr int kLeastStretching = 16;  // less of a line says nothing
constexpr int kGoodStretching = 30;   // more of it is worth no other column

// A column that is shown.
struct Shown {
  size_t index = 0;
  int width = 0;
};

int WidthOf(const TextTable& table, size_t index) {
  int width = 0;
  for (const TableRow& row : table.rows) {
    if (row.heading.empty()) width = std::max(width, ColumnsOf(row.cells[index].text));
  }
  if (width == 0) return 0;  // unknown in all rows
  const TableColumn& column = table.columns[index];
  width = std::max(width, ColumnsOf(column.header));
  return column.is_stretching ? width : std::min(width, kMaxCell);
}

// Which columns there is room for, and how much for each: the most important first.
std::vector<Shown> FittingColumns(const TextTable& table, int columns) {
  std::vector<size_t> order(table.columns.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&table](size_t a, size_t b) {
    return table.columns[a].importance < table.columns[b].importance;
  });
  std::vector<Shown> shown;
  int left = columns;
  for (const size_t index : order) {
    const bool is_stretching = table.columns[index].is_stretching;
    const int wanted = WidthOf(table, index);
    const int gap = shown.empty() ? 0 : kGap;
    int width = is_stretching ? std::min(wanted, kGoodStretching) : wanted;
    const int least = shown.empty() ? 1 : is_stretching ? kLeastStretching : width;
    if (wanted == 0 || left - gap < std::min(width, least)) continue;
    width = std::min(width, left - gap);
    left -= gap + width;
    shown.push_back({index, width});
  }
  for (Shown& column : shown) {
    if (!table.columns[column.index].is_stretching) continue;
    const int more = std::min(WidthOf(table, column.index) - column.width, left);
    column.width += more;
    left -= more;
  }
  std::sort(shown.begin(), shown.end(),
            [](const Shown& a, const Shown& b) { return a.index < b.index; });
  return shown;
}

std::string Padded(const std::string& text, const Cell& cell, int width, bool is_number,
                   bool allows_colours) {
  const std::string room(std::max(width - ColumnsOf(text), 0), ' ');
  const std::string inked = Coloured(text, cell.colour, allows_colours);
  return is_number ? room + inked : inked + room;
}

std::string Line(const TextTable& table, const std::vector<Shown>& shown,
                 const std::vector<Cell>* cells, bool allows_colours) {
  std::string line;
  for (const Shown& place : shown) {
    const TableColumn& column = table.columns[place.index];
    const Cell cell = cells != nullptr ? (*cells)[place.index] : Cell{column.header};
    const std::string unknown = column.is_stretching ? "" : "-";
    const std::string text = CutToColumns(cell.text.empty() ? unknown : cell.text, place.width);
    if (!line.empty()) line += std::string(kGap, ' ');
    line += Padded(text, cell, place.width, column.is_number, allows_colours);
  }
  line.resize(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::string Coloured(const std::string& text, CellColour colour, bool allows_colours) {
  if (!allows_colours || text.empty()) return text;
  switch (colour) {
    case CellColour::kNone:
      break;
    case CellColour::kGood:
      return absl::StrCat("\x1b[32m", text, "\x1b[0m");
    case CellColour::kNotice:
      return absl::StrCat("\x1b[33m", text, "\x1b[0m");
    case CellColour::kBad:
      return absl::StrCat("\x1b[31m", text, "\x1b[0m");
  }
  return text;
}

std::vector<std::string> TableLines(const TextTable& table, int columns, bool allows_colours) {
  std::vector<std::string> lines;
  if (table.rows.empty()) return lines;
  const std::vector<Shown> shown = FittingColumns(table, std::max(columns, 1));
  if (!shown.empty()) lines.push_back(Line(table, shown, nullptr, false));
  for (const TableRow& row : table.rows) {
    lines.push_back(row.heading.empty() ? Line(table, shown, &row.cells, allows_colours)
                                        : CutToColumns(row.heading, columns));
  }
  return lines;
}

}  // namespace ddprun::launcher
