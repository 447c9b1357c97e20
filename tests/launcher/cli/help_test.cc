// What --help prints, of ddprun and of its commands.

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

#include "launcher/cli/cli.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/text.h"
#include "launcher/process/exit_status.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

std::string Printed(const std::vector<std::string>& words) {
  const absl::StatusOr<CommandLine> line = ReadCommandLine(words);
  REQUIRE_MESSAGE(line.ok(), line.status().ToString());
  return line->print;
}

// Of the lines, none of which is wider than a terminal.
size_t CountNarrowLines(const std::string& text) {
  size_t count = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line); ++count) {
    CAPTURE(line);
    CHECK(line.size() <= 80);
    CHECK(line.find_last_not_of(' ') + 1 == line.size());
  }
  return count;
}

TEST_CASE("help: an example comes first, and no line is wider than a terminal") {
  for (const std::string& help : {HelpText(nullptr), FullHelpText()}) {
    CHECK(help.find("Examples:\n  ddprun --nproc-per-node=4 ") == 0);
    CHECK(CountNarrowLines(help) > 0);
  }
}

TEST_CASE("help: the short one has every command in a line, and ends within 60 lines") {
  const std::string help = Printed({"--help"});
  CHECK(help == HelpText(nullptr));
  CHECK(CountNarrowLines(help) <= 60);
  for (const CommandRow& command : CommandTable()) {
    const std::string text = command.help;
    const size_t end = text.find(". ");
    CHECK(help ==
          Contains(" " + text.substr(0, end == std::string::npos ? text.size() - 1 : end) + "\n"));
  }
  CHECK(help == Contains("--nproc-per-node"));
  CHECK(help == Contains("--help-all"));
}

TEST_CASE("help: a command's has its usage and its options, and ddprun's names the command") {
  for (const CommandRow& command : CommandTable()) {
    const std::string help = Printed({command.name, "--help"});
    CAPTURE(help);
    const bool may_lack = command.subject != nullptr && ChoicesIn(command.subject).size() == 1;
    const std::string subject = may_lack ? std::string(" [") + command.subject + "]"
                                : command.subject != nullptr ? std::string(" ") + command.subject
                                : command.argument != nullptr
                                    ? std::string(" [") + command.argument + "]"
                                    : "";
    CHECK(help ==
          Contains(std::string("\nUsage: ddprun ") + command.name + subject + " [options]\n"));
    CHECK(FullHelpText() == Contains(std::string("\n  ddprun ") + command.name + " "));
    for (const OptionRow& row : command.options) {
      const std::string name = Dashed(row.name);
      if (row.old == nullptr) CHECK(help == Contains(name));
      if (row.old != nullptr) CHECK(help != Contains(name));
    }
    CHECK(CountNarrowLines(help) > 0);
    CHECK(help.substr(help.size() - 2) != "\n\n");
  }
}

TEST_CASE("help: every option stands once, below the heading of its group, with all of its text") {
  const std::string help = FullHelpText();
  std::string words;  // with single spaces, as before it was wrapped
  std::istringstream stream(help);
  for (std::string word; stream >> word;) words += word + " ";
  for (const OptionRow& row : OptionTable()) {
    if (row.old != nullptr) {
      CHECK(words != Contains(Dashed(row.name) + "="));
      continue;
    }
    const std::string value = row.is_flag() ? "" : std::string("=") + row.value;
    const std::string name =
        Dashed(row.name) + (row.may_stand_alone ? "[" + value + "]" : value) + " ";
    CAPTURE(name);
    const std::string entry = name + row.help + " ";
    const size_t at = words.find(entry);
    REQUIRE(at != std::string::npos);
    CHECK(words.find(entry, at + 1) == std::string::npos);
    const size_t heading = help.find(std::string("\n\n") + row.group + ":\n");
    REQUIRE(heading != std::string::npos);
    const size_t line = help.find(Dashed(row.name), heading);
    CHECK(help.find("\n\n", heading + 2) > line);
    if (row.letter != 0) CHECK(help.substr(line - 4, 4) == std::string{'-', row.letter} + ", ");
  }
}

TEST_CASE("help: the table of exit codes is in it") {
  const std::string help = FullHelpText();
  for (const ExitCodeMeaning& row : kExitCodes) {
    CHECK(help == Contains(std::string(row.meaning)));
    CHECK(help == Contains("\n  " + std::to_string(row.code)));
  }
}

}  // namespace
}  // namespace ddprun::launcher
