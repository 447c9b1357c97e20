#include "launcher/report/last_words.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

// Dead workers and what they left behind.
struct Fixture {
  LastWords Dead(int local_rank, bool is_failure = true) const {
    LastWords dead{.report = {}, .is_failure = is_failure};
    dead.report.local_rank = local_rank;
    dead.report.rank = 4 + local_rank;
    dead.report.pid = 70 + local_rank;
    dead.report.error_file = dir.File("error" + std::to_string(local_rank));
    return dead;
  }
  void Leave(int local_rank, const std::string& text) const {
    std::ofstream(dir.File("error" + std::to_string(local_rank))) << text;
  }
  std::vector<LastWords> Read(const std::vector<LastWords>& dead, size_t room = 32) {
    return ReadLastWords(dead, room, [this](int local_rank, size_t max_lines, Duration timeout) {
      CHECK(max_lines > 0);
      CHECK(timeout <= kTailTimeout);
      asked.push_back(local_rank);
      return "last of " + std::to_string(local_rank);
    });
  }

  testing::TempDir dir;
  std::vector<int> asked;  // local ranks whose last lines were asked for
};

TEST_CASE("last words: the error file, who is blamed in it, and the last lines") {
  Fixture fixture;
  fixture.Leave(1, R"({"message": {"message": "ValueError: boom", "extraInfo":)"
                   R"( {"py_callstack": "here", "timestamp": "17", "left_peer": 3}}})");
  const LastWords words = fixture.Read({fixture.Dead(1)}).at(0);
  CHECK(words.is_failure);
  CHECK(words.report.stderr_tail == "last of 1");
  CHECK(words.report.error == rendezvous::WorkerError{"ValueError: boom", "here", 17});
  CHECK(words.report.left_peer == 3);
  CHECK(words.warning.empty());
}

TEST_CASE("last words: the note that a peer left is removed, and no other error file") {
  Fixture fixture;
  for (const int local_rank : {0, 1, 3}) {
    fixture.Leave(local_rank, R"({"message": {"message": "rank 3 left", "extraInfo":)"
                              R"( {"left_peer": 3}}})");
  }
  fixture.Leave(2, R"({"message": "boom"})");
  const std::vector<LastWords> words = fixture.Read(
      {fixture.Dead(0), fixture.Dead(1, false), fixture.Dead(2), fixture.Dead(3)}, /*room=*/3);
  CHECK(words[1].is_failure);
  CHECK(words[2].report.error_file == fixture.dir.File("error2"));
  for (const int local_rank : {0, 1, 3}) {  // the last of them without room for its texts
    CHECK(words[static_cast<size_t>(local_rank)].report.left_peer == 3);
    CHECK(words[static_cast<size_t>(local_rank)].report.error_file.empty());
    CHECK_FALSE(std::ifstream(fixture.dir.File("error" + std::to_string(local_rank))).good());
  }
  CHECK(std::ifstream(fixture.dir.File("error2")).good());
}

TEST_CASE("last words: a worker without an error file has none, nor one that did not start") {
  Fixture fixture;
  CHECK(fixture.Read({fixture.Dead(0)}).at(0).report.error_file.empty());
  fixture.Leave(1, R"({"message": "somebody else's"})");
  LastWords never_started = fixture.Dead(1);
  never_started.report.pid = 0;
  CHECK_FALSE(fixture.Read({never_started}).at(0).report.error);
}

TEST_CASE("last words: an error file that cannot be used is named, with its rank and why") {
  Fixture fixture;
  fixture.Leave(0, "{");
  const std::string broken = fixture.dir.File("error0");
  const std::string link = fixture.dir.File("error1");
  REQUIRE(symlink(broken.c_str(), link.c_str()) == 0);
  const std::string fifo = fixture.dir.File("error2");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  const std::vector<LastWords> words =
      fixture.Read({fixture.Dead(0), fixture.Dead(1), fixture.Dead(2)});
  CHECK(words[0].warning == "warning: the error file of rank 4, " + broken + ", is no valid JSON");
  CHECK(words[1].warning == "warning: the error file of rank 5, " + link + ", is a symbolic link");
  CHECK(words[2].warning == "warning: the error file of rank 6, " + fifo + ", is no regular file");
  CHECK(words[0].report.error_file == broken);
  CHECK(words[0].is_failure);
}

TEST_CASE("last words: who was told to stop failed only with an error file, and is asked no more") {
  Fixture fixture;
  fixture.Leave(1, R"({"message": "lost it on the way"})");
  const std::vector<LastWords> words =
      fixture.Read({fixture.Dead(0, false), fixture.Dead(1, false)});
  CHECK_FALSE(words[0].is_failure);
  CHECK(words[1].is_failure);
  CHECK(fixture.asked == std::vector<int>{1});
}

TEST_CASE("last words: of more than there is room for nothing is kept, but that it is there") {
  Fixture fixture;
  std::vector<LastWords> dead;
  for (int i = 0; i < 5; ++i) {
    if (i != 3) fixture.Leave(i, R"({"message": "boom"})");
    dead.push_back(fixture.Dead(i, /*is_failure=*/i < 2));
  }
  fixture.Leave(4, R"({"message": {"message": "rank 3 left", "extraInfo": {"left_peer": 3}}})");
  const std::vector<LastWords> words = fixture.Read(dead, /*room=*/1);
  CHECK(words[0].report.error);
  CHECK_FALSE(words[1].report.error);
  CHECK(words[1].is_failure);
  CHECK_FALSE(words[1].is_left_out);
  CHECK(words[2].is_left_out);
  CHECK_FALSE(words[3].is_left_out);
  CHECK(words[4].is_left_out);
  CHECK(fixture.asked == std::vector<int>{0});
}

TEST_CASE("last words: what steers a terminal is cut out of them, what looks like it stays") {
  struct Row {
    std::string text;
    std::string without;
  };
  const std::vector<Row> rows = {
      {"  File \x1b[35m\"t.py\"\x1b[0m, line \x1b[35m3\x1b[0m", "  File \"t.py\", line 3"},
      {"\x1b[1;31mValueError\x1b[0m: \x1b[35mboom\x1b[0m\n", "ValueError: boom\n"},
      {"\x1b[2J\x1b[?25lgone\x1b[?25h", "gone"},
      {"\x1b]0;title\a\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"},
      {"\x1b(B\x1b[m", ""},
      {"cut \x1b[3", "cut \x1b[3"},
      {"cut \x1b", "cut \x1b"},
      {"\x1b]0;no end\nnext", "\x1b]0;no end\nnext"},
      {"\x1bM [35m \xc3\xa4", "\x1bM [35m \xc3\xa4"}};
  for (const Row& row : rows) CHECK(WithoutEscapeSequences(row.text) == row.without);
  Fixture fixture;
  fixture.Leave(0, R"({"message": {"message": "\u001b[1mboom\u001b[0m", "extraInfo":)"
                   R"( {"py_callstack": "at \u001b[35m3\u001b[0m"}}})");
  const std::vector<LastWords> words = ReadLastWords(
      {fixture.Dead(0)}, 1, [](int, size_t, Duration) { return "\x1b[31mred\x1b[0m"; });
  CHECK(words[0].report.stderr_tail == "red");
  CHECK(words[0].report.error->message == "boom");
  CHECK(words[0].report.error->traceback == "at 3");
}

}  // namespace
}  // namespace ddprun::launcher
