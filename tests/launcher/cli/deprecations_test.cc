// Old names of options: each is in the table of docs/reference/versions.md.
#include <doctest/doctest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "launcher/cli/option_table.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/subprocess.h"

namespace ddprun::launcher {
namespace {

TEST_CASE("docs/reference/versions.md: the table of old names is that of the program") {
  const std::string document = testing::ReadFile(testing::Runfile("docs/reference/versions.md"));
  std::string table =
      "\n| old | new | deprecated since | what the old one does |\n|---|---|---|---|\n";
  for (const Deprecation& row : Deprecations()) {
    absl::StrAppend(&table, "| `", row.old_use, "` | `", row.new_use, "` | ", row.since, " | ",
                    row.meaning, " |\n");
  }
  CHECK(document == Contains(table + "\n"));
}

TEST_CASE("deprecations: each is that of one row, and has its successor in the same table") {
  for (const Deprecation& old : Deprecations()) {
    CAPTURE(old.old_use);
    int rows = 0, successors = 0;
    const auto count = [&](std::span<const OptionRow> table) {
      for (const OptionRow& row : table) {
        if (row.old != &old) continue;
        ++rows;
        for (const OptionRow& other : table) {
          if (other.name == std::string_view(old.successor) && other.old == nullptr) ++successors;
        }
      }
    };
    count(OptionTable());
    for (const CommandRow& command : CommandTable()) count(command.options);
    CHECK(rows == 1);
    CHECK(successors == 1);
  }
}

}  // namespace
}  // namespace ddprun::launcher
