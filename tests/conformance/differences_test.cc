#include "tests/conformance/differences.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/support/subprocess.h"

namespace ddprun::testing {
namespace {

constexpr char kTable[] =
    "# a comment\n"
    "[one, two] exit\n"
    "torchrun: failure\n"
    "ddprun: usage\n"
    "why: a wrong word is a wrong\n"
    "  word\n"
    "\n"
    "[one] out\n"
    "torchrun: a * c\n"
    "ddprun: (absent)\n"
    "why: no reason\n"
    "\n"
    "[four, *] mark\n"
    "torchrun: (absent)\n"
    "ddprun: *\n"
    "why: ours alone\n"
    "\n"
    "[five] mark\n"
    "torchrun: 1\n"
    "ddprun: 2\n"
    "why: an exception\n";

std::vector<Difference> Table() {
  std::vector<std::string> problems;
  std::vector<Difference> table = ParseDifferences(kTable, &problems);
  CHECK(problems.empty());
  return table;
}

TEST_CASE("differences: rows are read, with their further lines") {
  const std::vector<Difference> table = Table();
  REQUIRE(table.size() == 4);
  CHECK(table[0].scenarios == std::vector<std::string>{"one", "two"});
  CHECK(table[0].field == "exit");
  CHECK(table[0].why == "a wrong word is a wrong word");
  CHECK(table[1].torchrun == "a * c");
}

TEST_CASE("differences: what cannot be read is told") {
  for (const char* text :
       {"exit\ntorchrun: a\nddprun: b\nwhy: c\n", "[one]\ntorchrun: a\nddprun: b\nwhy: c\n",
        "[one] exit\ntorchrun: a\nddprun: b\n", "[one] exit\nother: a\n", "[one] exit\n  a\n"}) {
    std::vector<std::string> problems;
    CHECK(ParseDifferences(text, &problems).empty());
    CHECK_MESSAGE(problems.size() == 1, text);
  }
}

TEST_CASE("differences: only what is listed may differ, and it must differ as listed") {
  const std::vector<Difference> table = Table();
  struct Row {
    const char* name;
    std::string scenario;
    Observed torchrun;
    Observed ddprun;
    size_t complaints;
  };
  const std::vector<Row> rows = {
      {"as listed", "one", {{"exit", "failure"}, {"out", "a b c"}}, {{"exit", "usage"}}, 0},
      {"equal beside it",
       "two",
       {{"exit", "failure"}, {"x", "1"}},
       {{"exit", "usage"}, {"x", "1"}},
       0},
      {"unlisted", "two", {{"exit", "failure"}, {"x", "1"}}, {{"exit", "usage"}, {"x", "2"}}, 1},
      {"unlisted, absent", "two", {{"exit", "failure"}}, {{"exit", "usage"}, {"x", "2"}}, 1},
      {"of another scenario", "three", {{"exit", "failure"}}, {{"exit", "usage"}}, 1},
      {"no longer there", "two", {{"exit", "usage"}}, {{"exit", "usage"}}, 1},
      {"never seen", "one", {{"exit", "failure"}}, {{"exit", "usage"}}, 1},
      {"otherwise", "two", {{"exit", "success"}}, {{"exit", "usage"}}, 1},
      {"anywhere", "three", {}, {{"mark", "x"}}, 0},
      {"anywhere, not there", "three", {}, {}, 0},
      {"anywhere, equal", "three", {{"mark", "x"}}, {{"mark", "x"}}, 0},
      {"anywhere, otherwise", "three", {{"mark", "y"}}, {{"mark", "x"}}, 1},
      {"anywhere, but named and not there", "four", {}, {}, 1},
      {"anywhere, but with a row of its own", "five", {{"mark", "1"}}, {{"mark", "2"}}, 0},
      {"anywhere, but otherwise in its own row", "five", {}, {{"mark", "2"}}, 1},
      {"the other way round", "two", {{"exit", "usage"}}, {{"exit", "failure"}}, 1},
  };
  for (const Row& row : rows) {
    CHECK_MESSAGE(Judge(table, row.scenario, row.torchrun, row.ddprun).size() == row.complaints,
                  row.name);
  }
}

TEST_CASE("differences: each row of the table is of a scenario that there is") {
  std::vector<std::string> problems;
  const std::vector<Difference> table =
      ParseDifferences(ReadFile(Runfile("tests/conformance/differences.txt")), &problems);
  for (const std::string& problem : problems) FAIL_CHECK(problem);
  std::string sources;
  for (const char* name : {
#include "tests/conformance/scenario_files.inc"
       }) {
    const std::string text = ReadFile(Runfile(std::string("tests/conformance/") + name));
    CHECK_MESSAGE(!text.empty(), name);
    sources += text;
  }
  CHECK(!table.empty());
  for (const Difference& row : table) {
    for (const std::string& scenario : row.scenarios) {
      const bool is_there =
          scenario == "*" || sources.find("name = \"" + scenario + "\"") != std::string::npos;
      CHECK_MESSAGE(is_there, "no scenario " << scenario);
    }
  }
}

}  // namespace
}  // namespace ddprun::testing
