// A table of aligned columns that never is wider than the terminal. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_TEXT_TABLE_H_
#define DDPRUN_LAUNCHER_STATUS_TEXT_TABLE_H_

#include <string>
#include <vector>

namespace ddprun::launcher {

enum class CellColour { kNone, kGood, kNotice, kBad };

struct Cell {
  std::string text;  // a ShownText; empty: unknown, shown as "-"
  CellColour colour = CellColour::kNone;
};

struct TableColumn {
  std::string header;
  int importance = 0;          // the least important go first where there is too little room
  bool is_number = false;      // to the right
  bool is_stretching = false;  // takes the room that is left, and shows nothing rather than "-"
};

struct TableRow {
  std::string heading;      // where not empty, the row is this text over all columns
  std::vector<Cell> cells;  // else one for each column
};

struct TextTable {
  std::vector<TableColumn> columns;
  std::vector<TableRow> rows;
};

// `text`, with ANSI's codes around it for the colour, if allowed.
std::string Coloured(const std::string& text, CellColour colour, bool allows_colours);

// The header and the rows, one line each. Columns that are unknown in all rows are left out.
// Nothing for a table without rows.
std::vector<std::string> TableLines(const TextTable& table, int columns, bool allows_colours);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_TEXT_TABLE_H_
