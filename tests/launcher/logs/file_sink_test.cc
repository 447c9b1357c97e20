#include "launcher/logs/file_sink.h"

#include <doctest/doctest.h>
#include <fcntl.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <vector>

#include "tests/launcher/logs/file_size_limit.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

TEST_CASE("file sink: every byte arrives as it was") {
  const testing::TempDir dir;
  const std::string bytes("a\0\xff\r\x1b[1m\nno end", 14);
  {
    auto sink = FileSink::Create(dir.File("log"));
    REQUIRE(sink.ok());
    for (const char c : bytes) sink->Write(std::string(1, c));
    sink->Finish();
    CHECK(sink->dropped_lines() == 0);
    CHECK(sink->last_error() == 0);
  }
  CHECK(testing::ReadFile(dir.File("log")) == bytes);
}

TEST_CASE("file sink: a file that is there already is refused by name") {
  const testing::TempDir dir;
  std::ofstream(dir.File("log")) << "x";
  const auto sink = FileSink::Create(dir.File("log"));
  REQUIRE_FALSE(sink.ok());
  CHECK(std::string(sink.status().message()).find(dir.File("log")) != std::string::npos);
}

TEST_CASE("file sink: a full disk costs whole lines, which are counted") {
  const testing::TempDir dir;
  auto sink = FileSink::Create(dir.File("log"));
  REQUIRE(sink.ok());
  FileSizeLimit limit(19);

  sink->Write("0123456789\nabc");      // 14 bytes
  sink->Write("defgh\nnext\nunfini");  // the limit falls into the second line
  CHECK(testing::ReadFile(dir.File("log")) == "0123456789\n");
  CHECK(sink->last_error() == EFBIG);
  CHECK(sink->dropped_lines() == 2);  // abcdefgh, next; the unfinished one is not over

  limit.Set(1000);
  sink->Write("shed");
  sink->Write(" line\nwhole\n");
  CHECK(testing::ReadFile(dir.File("log")) == "0123456789\nwhole\n");
  CHECK(sink->dropped_lines() == 3);
}

TEST_CASE("file sink: a device that is full drops everything and the end counts") {
  FileSink sink(UniqueFd(open("/dev/full", O_WRONLY | O_CLOEXEC)));
  CHECK(sink.TakeBreak() == 0);
  sink.Write("a\nb\nc");
  CHECK(sink.TakeBreak() == ENOSPC);
  sink.Write("d\ne");
  CHECK(sink.TakeBreak() == 0);
  sink.Finish();
  CHECK(sink.dropped_lines() == 4);
  CHECK(sink.last_error() == ENOSPC);
}

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
