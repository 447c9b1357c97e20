// Every option in every spelling; the rows come from the table, so a new one is tested by itself.
#include "launcher/cli/option_table.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launcher/cli/cli.h"

namespace ddprun::launcher {
namespace {

using Words = std::vector<std::string>;

bool EndsReading(const OptionRow& row) {
  const std::string name = row.name;
  return name == "help" || name == "version";
}

// The one option that `words`, followed by a program, are read as.
OptionUse Only(Words words) {
  words.insert(words.end(), {"program", "--nnodes=0"});
  INFO("words: ", words[0], " ", words[1]);
  const auto split = SplitAtProgram(words);
  REQUIRE_MESSAGE(split.ok(), split.status().ToString());
  REQUIRE(split->options.size() == 1);
  if (!EndsReading(*split->options[0].row)) {
    CHECK(split->program == Words{"program", "--nnodes=0"});
  }
  return split->options[0];
}

std::string ErrorOf(const Words& words) {
  const auto split = SplitAtProgram(words);
  REQUIRE_FALSE(split.ok());
  CHECK(split.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(split.status().message());
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
  return rows;
}

TEST_CASE("option table: every option is read with dashes and underscores, = or the next word") {
  for (const OptionRow& row : OptionTable()) {
    for (const std::string& name : SpellingsOf(row.name)) {
      const std::string word = "--" + name;
      CAPTURE(word);
      if (row.is_flag()) {
        CHECK(Only({word}).row == &row);
        CHECK(ErrorOf({word + "=1", "p"}).find("'1': it takes no value") != std::string::npos);
        continue;
      }
      for (const std::string value : {"3", "", "-t", "--nnodes", "a b", "x=y", "--"}) {
        const OptionUse attached = Only({word + "=" + value});
        CHECK(attached.row == &row);
        CHECK(attached.value == value);
        const OptionUse next = Only({word, value});
        CHECK(next.row == &row);
        CHECK(next.value == value);
      }
      CHECK(ErrorOf({word}).find("'" + word + "' needs a value") == 0);
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
      const OptionUse use = Only(words);
      CHECK(use.row == &row);
      CHECK(use.value == "3");
    }
    const Words behind = {std::string("-m") + row.letter + "3", "p"};
    const auto split = SplitAtProgram(behind);
    REQUIRE(split.ok());
    REQUIRE(split->options.size() == 2);
    CHECK(std::string(split->options[0].row->name) == "module");
    CHECK(split->options[1].row == &row);
    CHECK(split->options[1].value == "3");
    CHECK(split->program == Words{"p"});
  }
}

TEST_CASE("option table: every beginning of an option is that option, or names all it could be") {
  for (const OptionRow& row : OptionTable()) {
    const std::string name = row.name;
    for (size_t length = 1; length < name.size(); ++length) {
      const std::string beginning = name.substr(0, length);
      if (FindOption(beginning) != nullptr) continue;  // a whole name is nothing else's beginning
      const std::vector<const OptionRow*> rows = RowsThatBeginWith(beginning);
      const Words words = row.is_flag() ? Words{"--" + beginning} : Words{"--" + beginning, "3"};
      CAPTURE(beginning);
      if (rows.size() == 1) {
        CHECK(Only(words).row == &row);
        continue;
      }
      const std::string error = ErrorOf(words);
      CHECK(error.find("option '--" + beginning + "' could be --") == 0);
      for (const OptionRow* other : rows) {
        CHECK(error.find(std::string("--") + other->name) != std::string::npos);
      }
    }
  }
}

TEST_CASE("option table: each option misspelt is told which one was meant") {
  for (const OptionRow& row : OptionTable()) {
    std::string word = std::string("--") + row.name;
    std::swap(word[word.size() - 1], word[word.size() - 2]);
    if (FindOption(word.substr(2)) != nullptr) continue;
    const std::string error = ErrorOf({word, "p"});
    CAPTURE(error);
    CHECK(error.find("unknown option '" + word + "'") == 0);
    if (std::string(row.name).size() > 3) {
      CHECK(error.find(std::string("did you mean --") + row.name + "?") != std::string::npos);
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
    const std::string variable = VariableOf(row);
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
  CHECK(flags >= 4);
}

TEST_CASE("option table: after the program everything is the program's, whatever it looks like") {
  const Words theirs = {"--d", "--log", "--", "-m", "--help", "--nnodes=0", "-r", "-h", "--t", ""};
  for (const Words& before : std::vector<Words>{{}, {"--nnodes=1"}, {"-r3", "--"}, {"--"}}) {
    Words words = before;
    words.push_back("train.py");
    words.insert(words.end(), theirs.begin(), theirs.end());
    const auto split = SplitAtProgram(words);
    REQUIRE(split.ok());
    Words expected = {"train.py"};
    expected.insert(expected.end(), theirs.begin(), theirs.end());
    CHECK(split->program == expected);
  }
}

}  // namespace
}  // namespace ddprun::launcher
