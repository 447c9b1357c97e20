#include "launcher/logs/filtered_file.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

// What stands in the file after these lines.
std::string Taken(std::vector<std::string> texts, const std::vector<std::string>& lines) {
  const testing::TempDir dir;
  const std::string path = dir.File("filtered.log");
  FilteredFile file(*FileSink::Create(path), std::move(texts));
  for (const std::string& line : lines) file.Take("apple ", line, " a,b");
  file.Flush();
  return testing::ReadFile(path);
}

TEST_CASE("filtered file: a line is taken when it holds any of the texts, with what is around it") {
  CHECK(Taken({"apple", "a,b"}, {"Apple", "apple", "appl", "an apple a day", "", "x a,b"}) ==
        "apple apple a,b\napple an apple a day a,b\napple x a,b a,b\n");
}

TEST_CASE("filtered file: bytes are compared, whatever they are") {
  const std::string zero("a\0\xff", 3);
  CHECK(Taken({zero.substr(1), "\xc3\xa4"}, {zero, zero.substr(0, 2), "\xff\xc3\xa4"}) ==
        "apple " + zero + " a,b\napple \xff\xc3\xa4 a,b\n");
}

TEST_CASE("filtered file: without texts no line matches, an empty text is in every line") {
  CHECK(Taken({}, {"x", ""}) == "");
  CHECK(Taken({""}, {"x", ""}) == "apple x a,b\napple  a,b\n");
}

}  // namespace
}  // namespace ddprun::launcher
