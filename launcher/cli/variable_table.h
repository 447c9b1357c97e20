// Every environment variable that ddprun, its library or its Python package reads or sets, as data.
// [pure]
//
// The variables of options come from option_table.h by a rule. tools/lint_checks/variables.py
// compares the rows with the sources, and docs/reference/environment.md is made of them.
#ifndef DDPRUN_LAUNCHER_CLI_VARIABLE_TABLE_H_
#define DDPRUN_LAUNCHER_CLI_VARIABLE_TABLE_H_

#include <span>

namespace ddprun::launcher {

struct VariableRow {
  const char* name;
  const char* by;        // who reads it
  const char* meaning;   // Markdown, without a full stop
  const char* fallback;  // without the variable; "": nothing is said
};

struct VariableGroup {
  const char* title;
  const char* intro;  // a sentence, Markdown
  std::span<const VariableRow> rows;
};

std::span<const VariableGroup> VariableTable();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_VARIABLE_TABLE_H_
