#include "launcher/cli/help.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/option_table.h"
#include "launcher/process/exit_status.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kWidth = 80;
constexpr size_t kTextColumn = 30;

constexpr char kHead[] =
    "Examples:\n"
    "  ddprun --nproc_per_node=4 ./train --epochs 3\n"
    "  ddprun --nnodes=2 --rdzv_endpoint=HOST:29400 ./train   (the same on each node)\n"
    "  ddprun doctor   (what this machine has for training, and what it lacks)\n"
    "\n"
    "Usage: ddprun [options] PROGRAM [ARGS...]\n"
    "\n"
    "Starts --nproc_per_node processes (gpu: one for each GPU), gives each its rank,\n"
    "watches them, restarts the job when something dies and says what died first.\n"
    "PROGRAM is any executable; a name ending in .py runs under $PYTHON_EXEC or\n"
    "python3, with -u.\n";

constexpr char kTail[] =
    "Options may be written with dashes or underscores, and cut short as long as only\n"
    "one begins so; the last of several wins. Everything after PROGRAM is the\n"
    "program's; ${local_rank} in it is replaced. PET_<NAME> in the environment stands\n"
    "in for an option. DDPRUN_LOG_LEVEL=info or =debug tells on stderr what ddprun\n"
    "does.\n"
    "\n"
    "Exit codes: that of the first worker that failed (128+n: killed by signal n), or\n";

std::vector<std::string> GroupsInOrder() {
  std::vector<std::string> groups;
  for (const OptionRow& row : OptionTable()) {
    if (std::find(groups.begin(), groups.end(), row.group) == groups.end()) {
      groups.emplace_back(row.group);
    }
  }
  return groups;
}

// `text` from column kTextColumn on; the first line begins behind `line`.
std::string Wrapped(std::string line, const std::string& text) {
  std::string out;
  if (line.size() + 1 >= kTextColumn) {
    out = line + "\n";
    line.clear();
  }
  line.resize(kTextColumn, ' ');
  bool is_empty = true;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (!is_empty && line.size() + 1 + word.size() > kWidth) {
      absl::StrAppend(&out, line, "\n");
      line.assign(kTextColumn, ' ');
      is_empty = true;
    }
    absl::StrAppend(&line, is_empty ? "" : " ", word);
    is_empty = false;
  }
  return absl::StrCat(out, line, "\n");
}

std::string NameOf(const OptionRow& row) {
  return absl::StrCat("  ", row.letter != 0 ? absl::StrFormat("-%c, ", row.letter) : "", "--",
                      row.name, row.is_flag() ? "" : "=", row.is_flag() ? "" : row.value);
}

}  // namespace

std::string HelpText() {
  std::string text = kHead;
  for (const std::string& group : GroupsInOrder()) {
    absl::StrAppend(&text, "\n", group, ":\n");
    for (const OptionRow& row : OptionTable()) {
      if (group == row.group) text += Wrapped(NameOf(row), row.help);
    }
  }
  absl::StrAppend(&text, "\n", kTail);
  for (const ExitCodeMeaning& row : kExitCodes) {
    const std::string code = row.code == kExitSignalBase ? "" : absl::StrFormat("%-3d  ", row.code);
    absl::StrAppend(&text, "  ", code, std::string(row.meaning), "\n");
  }
  return text;
}

}  // namespace ddprun::launcher
