#include "launcher/cli/completion.h"

#include <algorithm>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

using Rows = std::span<const OptionRow>;

// How a value is completed.
enum class Kind { kNone, kWords, kFile, kFolder };

struct Value {
  Kind kind = Kind::kNone;
  std::vector<std::string> words;
};

Value ValueOf(const OptionRow& row) {
  Value value;
  for (std::string& part : ChoicesIn(row.value)) {
    if (part == "FILE" || part == "PATH") return {.kind = Kind::kFile, .words = {}};
    if (part == "DIR") return {.kind = Kind::kFolder, .words = {}};
    const bool is_word = std::all_of(part.begin(), part.end(),
                                     [](char c) { return c != ',' && (c < 'A' || c > 'Z'); });
    if (is_word) value.words.push_back(std::move(part));
  }
  if (!value.words.empty()) value.kind = Kind::kWords;
  return value;
}

// Names of options whose value, if any, stands behind the sign alone, by `separator`, each behind
// `prefix`.
std::string StandingAlone(const char* separator, const char* prefix) {
  std::vector<std::string> names;
  for (const OptionRow& row : OptionTable()) {
    if (row.may_stand_alone) names.push_back(absl::StrCat(prefix, row.name));
  }
  return absl::StrJoin(names, separator);
}

std::string LongNames(Rows rows) {
  std::vector<std::string> names;
  for (const OptionRow& row : rows) {
    if (row.old == nullptr) names.push_back(Dashed(row.name));
  }
  return absl::StrJoin(names, " ");
}

std::string CommandNames() {
  return absl::StrJoin(CommandTable(), " ",
                       [](std::string* out, const CommandRow& row) { out->append(row.name); });
}

std::string SubjectsOf(const CommandRow& command) {
  if (command.subject != nullptr) return absl::StrJoin(ChoicesIn(command.subject), " ");
  const bool takes_command =
      command.argument != nullptr && command.argument == std::string_view("COMMAND");
  return takes_command ? CommandNames() : "";
}

// ---- bash

// The cases of `option` in one of the tables: what COMPREPLY becomes, and that it has a value.
std::string BashValues(Rows rows) {
  std::string cases;
  for (const OptionRow& row : rows) {
    if (row.is_flag()) continue;
    const Value value = ValueOf(row);
    std::string action = ":";
    if (value.kind == Kind::kFile) action = "compgen -f -- \"$current\"";
    if (value.kind == Kind::kFolder) action = "compgen -d -- \"$current\"";
    if (value.kind == Kind::kWords) {
      action = absl::StrCat("compgen -W '", absl::StrJoin(value.words, " "), "' -- \"$current\"");
    }
    // Every dash has become an underscore.
    const std::string letter = row.letter == 0 ? "" : std::string({'|', '_', row.letter});
    absl::StrAppend(&cases, "    __", row.name, letter, ") ", action, " ;;\n");
  }
  return cases;
}

std::string Bash() {
  std::string options, values = BashValues(OptionTable());
  for (const CommandRow& command : CommandTable()) {
    absl::StrAppend(&options, "    ", command.name, ") echo '", SubjectsOf(command), " ",
                    LongNames(command.options), "' ;;\n");
    absl::StrAppend(&values, BashValues(command.options));
  }
  // Of a name in several tables the first counts; they mean the same there.
  return absl::StrReplaceAll(
      R"sh(# Completion of ddprun's command line in bash.

# What the value of option $1 may be, the word so far being $current; false: it takes none.
_ddprun_values() {
  case ${1//-/_} in
@VALUES@    *) return 1 ;;
  esac
  return 0
}

_ddprun_options() {
  case $1 in
@OPTIONS@    *) echo '@LONG@' ;;
  esac
}

_ddprun() {
  local current=${COMP_WORDS[COMP_CWORD]} option= first= at word
  COMPREPLY=()
  # bash makes three words of --name=value.
  for ((at = 1; at < COMP_CWORD; ++at)); do
    word=${COMP_WORDS[at]}
    if [[ $word == = ]]; then
      continue
    elif [[ $word == : ]]; then
      ((++at))  # and three of gpu:1
    elif [[ -n $option ]]; then
      option=
    elif [[ $word == -* ]]; then
      _ddprun_values "$word" >/dev/null && option=$word
      case ${word//-/_} in
        @ALONE@) [[ ${COMP_WORDS[at + 1]-} == = ]] || option= ;;
      esac
    elif ((at == 1)) && [[ " @COMMANDS@ " == *" $word "* ]]; then
      first=$word
    elif [[ -z $first ]]; then
      compopt -o default  # the program's own arguments
      return
    fi
  done
  [[ $current == = ]] && current=
  if [[ -n $option ]]; then
    mapfile -t COMPREPLY < <(_ddprun_values "$option")
    compopt -o filenames
  elif [[ -n $first || $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_ddprun_options "$first")" -- "${current//_/-}")
  else
    ((COMP_CWORD > 1)) || mapfile -t COMPREPLY < <(compgen -W '@COMMANDS@' -- "$current")
    mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -c -- "$current"; compgen -f -- "$current")
    compopt -o filenames
  fi
}
complete -F _ddprun ddprun
)sh",
      {{"@VALUES@", values},
       {"@OPTIONS@", options},
       {"@LONG@", LongNames(OptionTable())},
       {"@ALONE@", StandingAlone("|", "__")},
       {"@COMMANDS@", CommandNames()}});
}

// ---- zsh

// In single quotes, and in the text of a specification of _arguments.
std::string ZshText(std::string_view text) {
  return absl::StrReplaceAll(absl::string_view(text.data(), text.size()),
                             {{"'", "'\\''"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

std::string ZshArguments(Rows rows) {
  std::string lines;
  for (const OptionRow& row : rows) {
    if (row.old != nullptr) continue;
    std::string value;
    if (!row.is_flag()) {
      const Value known = ValueOf(row);
      std::string action = " ";
      if (known.kind == Kind::kFile) action = "_files";
      if (known.kind == Kind::kFolder) action = "_files -/";
      if (known.kind == Kind::kWords)
        action = absl::StrCat("(", absl::StrJoin(known.words, " "), ")");
      value = absl::StrCat(row.may_stand_alone ? "::" : ":", ZshText(row.value), ":", action);
    }
    const std::string help = absl::StrCat("[", ZshText(row.help), "]", value, "'");
    const char* const equals = row.is_flag() ? "" : row.may_stand_alone ? "=-" : "=";
    absl::StrAppend(&lines, "    '", Dashed(row.name), equals, help, " \\\n");
    if (row.letter == 0) continue;
    absl::StrAppend(&lines, "    '-", std::string(1, row.letter), row.is_flag() ? "" : "+", help,
                    " \\\n");
  }
  return lines;
}

std::string Zsh() {
  std::string commands, cases;
  for (const CommandRow& command : CommandTable()) {
    absl::StrAppend(&commands, "    '", command.name, ":", ZshText(command.help), "'\n");
    const std::string subject =
        SubjectsOf(command).empty() ? "" : absl::StrCat(" '1: :(", SubjectsOf(command), ")'");
    absl::StrAppend(&cases, "    ", command.name,
                    ") shift words; ((--CURRENT)); _arguments -s \\\n",
                    ZshArguments(command.options), "     ", subject, "; return ;;\n");
  }
  return absl::StrReplaceAll(
      R"sh(#compdef ddprun
# Completion of ddprun's command line in zsh.

_ddprun_first() {
  local -a commands
  commands=(
@COMMANDS@  )
  ((CURRENT == 2)) && _describe command commands
  _command_names -e
  _files
}

_ddprun() {
  ((CURRENT > 2)) && case $words[2] in
@CASES@  esac
  _arguments -s -A '-*' \
@OPTIONS@    '1: :_ddprun_first' '*: :_files'
}

if [[ $funcstack[1] == _ddprun ]]; then _ddprun "$@"; else compdef _ddprun ddprun; fi
)sh",
      {{"@COMMANDS@", commands}, {"@CASES@", cases}, {"@OPTIONS@", ZshArguments(OptionTable())}});
}

// ---- fish

std::string FishText(std::string_view text) {
  return absl::StrReplaceAll(absl::string_view(text.data(), text.size()),
                             {{"\\", "\\\\"}, {"'", "\\'"}});
}

std::string FishLines(const std::string& condition, Rows rows) {
  std::string lines;
  for (const OptionRow& row : rows) {
    if (row.old != nullptr) continue;
    absl::StrAppend(&lines, "complete -c ddprun -n '", condition, "' -l ",
                    Dashed(row.name).substr(2));
    if (row.letter != 0) absl::StrAppend(&lines, " -s ", std::string(1, row.letter));
    if (!row.is_flag() && !row.may_stand_alone) {
      const Value value = ValueOf(row);
      if (value.kind == Kind::kNone) absl::StrAppend(&lines, " -x");
      if (value.kind == Kind::kFile) absl::StrAppend(&lines, " -r -F");
      if (value.kind == Kind::kFolder)
        absl::StrAppend(&lines, " -x -a '(__fish_complete_directories)'");
      if (value.kind == Kind::kWords) {
        absl::StrAppend(&lines, " -x -a '", absl::StrJoin(value.words, " "), "'");
      }
    }
    absl::StrAppend(&lines, " -d '", FishText(row.help), "'\n");
  }
  return lines;
}

std::string Fish() {
  std::string options, with_value, lines;
  for (const OptionRow& row : OptionTable()) {
    if (row.is_flag() || row.may_stand_alone) continue;
    absl::StrAppend(&with_value, " --", row.name);
    if (row.letter != 0) absl::StrAppend(&with_value, " -", std::string(1, row.letter));
  }
  for (const CommandRow& command : CommandTable()) {
    absl::StrAppend(&lines, "complete -c ddprun -n '__ddprun_is_first' -a ", command.name, " -d '",
                    FishText(command.help), "'\n");
    const std::string condition = absl::StrCat("__ddprun_runs ", command.name);
    if (!SubjectsOf(command).empty()) {
      absl::StrAppend(&lines, "complete -c ddprun -n '", condition, "' -f -a '",
                      SubjectsOf(command), "'\n");
    }
    absl::StrAppend(&lines, FishLines(condition, command.options));
  }
  return absl::StrCat(absl::StrReplaceAll(R"sh(# Completion of ddprun's command line in fish.

function __ddprun_is_first
    test (count (commandline -opc)) = 1
end

function __ddprun_runs
    set -l words (commandline -opc)
    test (count $words) -gt 1; and test $words[2] = $argv[1]
end

# Whether the program, or a command, still has to come.
function __ddprun_has_none
    set -l words (commandline -opc)
    set -l is_value 0
    for word in $words[2..-1]
        if test $is_value = 1
            set is_value 0
        else if string match -q -- '-*' $word
            contains -- (string replace -a -r '(?<=\w)-' _ -- $word) @WITH_VALUE@; and set is_value 1
        else
            return 1
        end
    end
end

)sh",
                                          {{"@WITH_VALUE@", with_value}}),
                      lines, FishLines("__ddprun_has_none", OptionTable()));
}

// ---- tcsh

std::string Tcsh() {
  std::string rules, names;
  for (const OptionRow& row : OptionTable()) {
    if (row.old != nullptr) continue;
    const std::string name = Dashed(row.name);
    absl::StrAppend(&names, name.substr(2), row.is_flag() || row.may_stand_alone ? " " : "= ");
    if (row.is_flag()) continue;
    const Value value = ValueOf(row);
    std::string choice = "x:<value>";
    if (value.kind == Kind::kFile) choice = "f";
    if (value.kind == Kind::kFolder) choice = "d";
    if (value.kind == Kind::kWords)
      choice = absl::StrCat("(", absl::StrJoin(value.words, " "), ")");
    absl::StrAppend(&rules, "  'c@", name, "=@", choice, "@'");
    if (!row.may_stand_alone) absl::StrAppend(&rules, " 'n@", name, "@", choice, "@'");
    absl::StrAppend(&rules, " \\\n");
  }
  for (const CommandRow& command : CommandTable()) {
    if (SubjectsOf(command).empty()) continue;
    absl::StrAppend(&rules, "  'n@", command.name, "@(", SubjectsOf(command), ")@' \\\n");
  }
  return absl::StrCat("# Completion of ddprun's command line in tcsh.\ncomplete ddprun \\\n", rules,
                      "  'c@--@(", names, ")@@' \\\n  'p@*@f@'\n");
}

}  // namespace

std::string CompletionText(std::string_view shell) {
  if (shell == "bash") return Bash();
  if (shell == "zsh") return Zsh();
  if (shell == "fish") return Fish();
  return shell == "tcsh" ? Tcsh() : "";
}

}  // namespace ddprun::launcher
