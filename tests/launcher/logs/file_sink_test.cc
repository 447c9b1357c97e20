#include "launcher/logs/file_sink.h"

#include <doctest/doctest.h>
#include <fcntl.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "tests/launcher/logs/file_size_limit.h"
#include "tests/support/contains.h"
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
  CHECK(sink.status().message() == Contains(dir.File("log")));
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
  sink.Write("a\nb\nc");
  sink.Write("d\ne");
  sink.Finish();
  CHECK(sink.dropped_lines() == 4);
  CHECK(sink.last_error() == ENOSPC);
}

TEST_CASE("file sink: what follows a gap begins with a whole line") {
  const testing::TempDir dir;
  auto sink = FileSink::Create(dir.File("log"));
  REQUIRE(sink.ok());
  sink->Write("one\nhalf of");
  sink->Skip(true, ETIMEDOUT);
  sink->Write(" it\ntwo\nhalf of");
  CHECK(testing::ReadFile(dir.File("log")) == "one\ntwo\nhalf of");
  sink->Skip(false, ETIMEDOUT);
  sink->Write("three\n");
  sink->Finish();
  CHECK(testing::ReadFile(dir.File("log")) == "one\ntwo\nthree\n");
  CHECK(sink->dropped_lines() == 1);  // whose end it saw
  CHECK(sink->last_error() == ETIMEDOUT);
}

}  // namespace
}  // namespace ddprun::launcher
