// Every option in every spelling; the rows come from the table, so a new one is tested by itself.
#include "launcher/cli/option_table.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "launcher/cli/cli.h"
#include "launcher/cli/text.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using Words = std::vector<std::string>;

// The one option that `words`, followed by a program, are read as.
struct Use {
  const OptionRow* row = nullptr;
  std::string value;
};
Use Only(Words words) {
  words.insert(words.end(), {"program", "--nnodes=0"});
  INFO("words: ", words[0], " ", words[1]);
  const auto line = ReadCommandLine(words);
  REQUIRE_MESSAGE(line.ok(), line.status().ToString());
  if (line->print == VersionText()) return {FindOption("version"), ""};
  if (line->print == FullHelpText()) return {FindOption("help_all"), ""};
  if (!line->print.empty()) return {FindOption("help"), ""};
  REQUIRE(line->given.size() == 1);
  CHECK(line->program == Words{"program", "--nnodes=0"});
  const auto& [name, given] = *line->given.begin();
  const Deprecation* const old = given.old_name;
  CHECK(given.source == (old != nullptr ? old->name : Dashed(name)));
  return {FindOption(old != nullptr ? std::string_view(old->name).substr(2) : name), given.text};
}

std::string ErrorOf(const Words& words) {
  const auto line = ReadCommandLine(words);
  REQUIRE_FALSE(line.ok());
  CHECK(line.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(line.status().message());
}

// a_b_c as it is, with dashes, and with one of each.
Words SpellingsOf(const std::string& name) {
  std::string dashes = name;
  std::replace(dashes.begin(), dashes.end(), '_', '-');
  std::string mixed = name;
  if (const size_t at = mixed.find('_'); at != std::string::npos) mixed[at] = '-';
  return {name, dashes, mixed};
}

std::vector<const OptionRow*> RowsThatBeginWith(const std::string& beginning) {
  std::vector<const OptionRow*> rows;
  for (const OptionRow& row : OptionTable()) {
    if (std::string(row.name).rfind(beginning, 0) == 0) rows.push_back(&row);
  }
  // torchrun's words mean what they mean there.
  const auto is_ours = [](const OptionRow* row) { return row->is_ours; };
  if (!std::all_of(rows.begin(), rows.end(), is_ours)) std::erase_if(rows, is_ours);
  return rows;
}

TEST_CASE("option table: every option is read with dashes and underscores, = or the next word") {
  for (const OptionRow& row : OptionTable()) {
    for (const std::string& name : SpellingsOf(row.name)) {
      const std::string word = "--" + name;
      CAPTURE(word);
      if (row.is_flag()) {
        CHECK(Only({word}).row == &row);
        CHECK(ErrorOf({word + "=1", "p"}) == Contains("'1': it takes no value"));
        continue;
      }
      for (const std::string value : {"3", "", "-t", "--nnodes", "a b", "x=y", "--"}) {
        const Use attached = Only({word + "=" + value});
        CHECK(attached.row == &row);
        CHECK(attached.value == value);
        if (row.may_stand_alone) continue;
        const Use next = Only({word, value});
        CHECK(next.row == &row);
        CHECK(next.value == value);
      }
      if (row.may_stand_alone) {
        CHECK(Only({word}).row == &row);
        CHECK(Only({word}).value == "");
      } else {
        CHECK(ErrorOf({word}).find("'" + word + "' needs a value") == 0);
      }
    }
  }
}

TEST_CASE("option table: every letter is read alone, attached, with '=' and behind a flag's") {
  for (const OptionRow& row : OptionTable()) {
    if (row.letter == 0) continue;
    const std::string word = {'-', row.letter};
    CAPTURE(word);
    if (row.is_flag()) {
      CHECK(Only({word}).row == &row);
      CHECK(ErrorOf({word + "=1", "p"}).find("unknown option '" + word) == 0);
      continue;
    }
    for (const Words& words : std::vector<Words>{{word, "3"}, {word + "3"}, {word + "=3"}}) {
      const Use use = Only(words);
      CHECK(use.row == &row);
      CHECK(use.value == "3");
    }
    const Words behind = {std::string("-m") + row.letter + "3", "p"};
    const auto line = ReadCommandLine(behind);
    REQUIRE(line.ok());
    REQUIRE(line->given.size() == 2);
    CHECK(line->given.at("module").text == "1");
    CHECK(line->given.at(row.name).text == "3");
    CHECK(line->program == Words{"p"});
  }
}

TEST_CASE(
    "option table: mpirun's -np and -ppn are read before the program, and left alone behind") {
  CHECK(Only({"-np", "4"}).row == FindOption("workers"));
  CHECK(Only({"-n", "4"}).row == FindOption("workers"));
  CHECK(Only({"-ppn", "4"}).row == FindOption("nproc_per_node"));
  const auto line = ReadCommandLine(Words{"-n", "4", "p", "-ppn", "2", "-np"});
  REQUIRE(line.ok());
  CHECK(line->program == Words{"p", "-ppn", "2", "-np"});
  CHECK(ErrorOf({"-np"}) == Contains("needs a value: --workers=N"));
  CHECK(ErrorOf({"doctor", "-ppn", "2"}) == Contains("unknown option '-ppn'"));
}

TEST_CASE("option table: no option of ours takes a beginning from one of torchrun's") {
  for (const auto& [beginning, name] :
       std::map<std::string, std::string>{{"t", "tee"},
                                          {"te", "tee"},
                                          {"ter", "termination_message_file"},
                                          {"re", "redirects"},
                                          {"rep", "report_file"}}) {
    CAPTURE(beginning);
    CHECK(Only({"--" + beginning, "3"}).row == FindOption(name));
  }
  CHECK(Only({"--no_"}).row == FindOption("no_python"));
}

TEST_CASE("option table: every beginning of an option is that option, or names all it could be") {
  for (const OptionRow& row : OptionTable()) {
    const std::string name = row.name;
    for (size_t length = 1; length < name.size(); ++length) {
      const std::string beginning = name.substr(0, length);
      if (FindOption(beginning) != nullptr) continue;  // a whole name is nothing else's beginning
      const std::vector<const OptionRow*> rows = RowsThatBeginWith(beginning);
      const bool may_stand_alone = rows[0]->may_stand_alone && rows.size() == 1;
      const Words words = row.is_flag()     ? Words{"--" + beginning}
                          : may_stand_alone ? Words{"--" + beginning + "=3"}
                                            : Words{"--" + beginning, "3"};
      CAPTURE(beginning);
      if (rows.size() == 1) {
        CHECK((rows[0] == &row || row.is_ours));
        if (rows[0]->is_flag() == row.is_flag()) CHECK(Only(words).row == rows[0]);
        continue;
      }
      const std::string error = ErrorOf(words);
      CHECK(error.find("option '--" + beginning + "' could be --") == 0);
      for (const OptionRow* other : rows) {
        CHECK(error == Contains(Dashed(other->name)));
      }
    }
  }
}

TEST_CASE("option table: each option misspelt is told which one was meant") {
  for (const OptionRow& row : OptionTable()) {
    if (row.old != nullptr) continue;
    std::string word = std::string("--") + row.name;
    std::swap(word[word.size() - 1], word[word.size() - 2]);
    if (FindOption(word.substr(2)) != nullptr) continue;
    const std::string error = ErrorOf({word, "p"});
    CAPTURE(error);
    CHECK(error.find("unknown option '" + word + "'") == 0);
    if (std::string(row.name).size() > 3) {
      CHECK(error == Contains("did you mean " + Dashed(row.name) + "?"));
    }
  }
}

TEST_CASE("option table: each flag's variable is a number, and 0 is off, as in torchrun") {
  const auto parse = [](const std::string& variable) {
    const char* const argv[] = {"ddprun", "p"};
    return ParseCommandLine(2, argv, {.variables = {variable}, .machine = {}});
  };
  int flags = 0;
  for (const OptionRow& row : OptionTable()) {
    if (!row.is_flag() || !row.has_variable) continue;
    ++flags;
    for (const std::string& variable : VariablesOf(row)) {
      for (const std::string value : {"0", "1", "-2", " 1 ", "00"}) {
        CAPTURE(variable + "=" + value);
        CHECK(parse(variable + "=" + value).ok());
      }
      for (const std::string value : {"true", "yes", "", "1.0", "-", "0x1"}) {
        const auto result = parse(variable + "=" + value);
        CAPTURE(variable + "=" + value);
        REQUIRE_FALSE(result.ok());
        CHECK(result.status().message() ==
              variable + " '" + value + "': expected a number: 0 is off, 1 is on");
      }
    }
  }
  CHECK(flags >= 4);
}

TEST_CASE("option table: a value is taken as it is, whatever an option would make of it") {
  for (const std::string value : {"--nno",
                                  "--nnodes=",
                                  "-r=3",
                                  "-r=",
                                  "-mx",
                                  "-mr=1",
                                  "--standalone=yes",
                                  "--standalone=",
                                  "--=",
                                  "-=",
                                  "---x",
                                  "-\xff",
                                  "=3",
                                  "==",
                                  "[1,2]",
                                  "{}",
                                  "%",
                                  "++",
                                  "--help",
                                  "-h",
                                  "doctor",
                                  "-5",
                                  "--unknown",
                                  "/windows:style",
                                  " ",
                                  "\n"}) {
    CAPTURE(value);
    CHECK(Only({"--role", value}).value == value);
    CHECK(Only({"--ro", value}).value == value);
    CHECK(Only({"--role=" + value}).value == value);
    const auto line = ReadCommandLine(Words{"-t", "3", "p", value, "--ro", value});
    REQUIRE(line.ok());
    CHECK(line->program == Words{"p", value, "--ro", value});
    const auto marked = ReadCommandLine(Words{"--", value, value});
    REQUIRE(marked.ok());
    CHECK(marked->program == Words{value, value});
  }
  CHECK(Only({"-r=3"}).value == "3");
  CHECK(Only({"-r="}).value.empty());
  CHECK(Only({"-r=="}).value == "=");
  CHECK(Only({"-r", "=3"}).value == "=3");
}

TEST_CASE("option table: a word that begins with a dash and is no option is never the program") {
  for (const std::string word : {"--=1", "---x", "-=", "-\xff", "-5", "-m=1", "-mx", "-mhx", "- x",
                                 "-!", "--unknown", "--!", "-h=1"}) {
    for (const Words& before : std::vector<Words>{{}, {"--nnodes=1"}, {"-m"}}) {
      Words words = before;
      words.insert(words.end(), {word, "p"});
      CHECK(ErrorOf(words).find("unknown option '" + (word == "--=1" ? "--" : EscapeControl(word)) +
                                "'") == 0);
    }
  }
}

TEST_CASE("option table: after the program everything is the program's, whatever it looks like") {
  const Words theirs = {"--d", "--log", "--", "-m", "--help", "--nnodes=0", "-r", "-h", "--t", ""};
  for (const Words& before : std::vector<Words>{{}, {"--nnodes=1"}, {"-r3", "--"}, {"--"}}) {
    Words words = before;
    words.push_back("train.py");
    words.insert(words.end(), theirs.begin(), theirs.end());
    const auto line = ReadCommandLine(words);
    REQUIRE(line.ok());
    Words expected = {"train.py"};
    expected.insert(expected.end(), theirs.begin(), theirs.end());
    CHECK(line->program == expected);
  }
}

}  // namespace
}  // namespace ddprun::launcher
