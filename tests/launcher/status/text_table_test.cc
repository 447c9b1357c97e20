#include "launcher/status/text_table.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace ddprun::launcher {
namespace {

using Lines = std::vector<std::string>;

TextTable Sample() {
  return {
      .columns = {{.header = "id", .importance = 0, .is_number = true},
                  {.header = "state", .importance = 1},
                  {.header = "never", .importance = 2},
                  {.header = "size", .importance = 3, .is_number = true},
                  {.header = "text", .importance = 2, .is_stretching = true}},
      .rows = {{.heading = "", .cells = {{"1"}, {"up"}, {}, {"7"}, {"a long text of 24 signs"}}},
               {.heading = "a heading over all", .cells = {}},
               {.heading = "", .cells = {{"10"}, {"down"}, {}, {}, {}}}}};
}

TEST_CASE("text table: columns are aligned, the unknown is a dash, an unknown column left out") {
  CHECK(TableLines(Sample(), 80, false) == Lines{"id  state  size  text",
                                                 " 1  up        7  a long text of 24 signs",
                                                 "a heading over all", "10  down      -"});
  CHECK(TableLines({.columns = Sample().columns, .rows = {}}, 80, false).empty());
}

TEST_CASE("text table: where there is little room, the important columns have it") {
  CHECK(TableLines(Sample(), 40, false)[1] == " 1  up        7  a long text of 24 signs");
  CHECK(TableLines(Sample(), 34, false)[1] == " 1  up     a long text of 24 signs");
  CHECK(TableLines(Sample(), 32, false)[1] == " 1  up     a long text of 24 ...");
  CHECK(TableLines(Sample(), 26, false)[1] == " 1  up        7");  // 15 columns of text say nothing
  CHECK(TableLines(Sample(), 14, false)[0] == "id  state");
  CHECK(TableLines(Sample(), 8, false) == Lines{"id  size", " 1     7", "a hea...", "10     -"});
  CHECK(TableLines(Sample(), 1, false) == Lines{"i", "1", "a", "1"});
}

TEST_CASE("text table: colours take no room") {
  TextTable table = Sample();
  table.rows[0].cells[1].colour = CellColour::kGood;
  CHECK(TableLines(table, 80, true)[1] ==
        " 1  \x1b[32mup\x1b[0m        7  a long text of 24 signs");
  CHECK(TableLines(table, 80, false) == TableLines(Sample(), 80, false));
}

}  // namespace
}  // namespace ddprun::launcher
