#include "launcher/report/last_words.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tests/support/contains.h"
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
  std::vector<LastWords> Read(const std::vector<LastWords>& dead, size_t room = 32,
                              FolderOwner owner = FolderOwner::kUser) {
    const auto tail = [this](int local_rank, size_t max_lines, Duration timeout) {
      CHECK(max_lines > 0);
      CHECK(timeout <= kTailTimeout);
      asked.push_back(local_rank);
      return "last of " + std::to_string(local_rank);
    };
    return ReadLastWords(dead, room, tail, owner);
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

TEST_CASE("last words: a traceback counts at the end of stderr, and not of a lost connection") {
  const std::string traceback =
      "Traceback (most recent call last):\n  File \"a.py\", line 5, in <module>\n    step()\n";
  CHECK(EndsInTraceback(traceback));  // its text comes
  CHECK(EndsInTraceback("step 5\n" + traceback + "ValueError: bad batch 5\n"));
  CHECK(EndsInTraceback(traceback + "MyError: a\nb\nc\n"));
  CHECK_FALSE(EndsInTraceback("step 5\n"));
  for (const char* lost :
       {"RuntimeError: [gloo/transport/tcp/pair.cc:544] Connection closed by peer [127.0.0.1]:29",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp"}) {
    CHECK_FALSE(EndsInTraceback(traceback + lost + "\n"));
  }
  // One that was handled: the program has gone on.
  std::string later = traceback + "ValueError: bad batch 5\n";
  for (int step = 0; step < 20; ++step) later += "step " + std::to_string(step) + "\n";
  CHECK_FALSE(EndsInTraceback(later));
}

TEST_CASE("last words: no lost peer ends a process by SIGKILL, SIGILL or SIGFPE") {
  for (const int signal : {9, 4, 8, 11, 7, 6, 15, 2, 1}) {
    CAPTURE(signal);
    rendezvous::FailureReport report;
    report.signal = signal;
    CHECK(HasOwnCause(report) == (signal == 9 || signal == 4 || signal == 8));
    report.left_peer = 3;
    CHECK_FALSE(HasOwnCause(report));
  }
}

TEST_CASE("last words: an exception that is no lost connection is a cause of its own") {
  struct Row {
    std::string error_file;
    std::string said;
    bool has_own_cause;
  };
  std::string frames;
  for (int frame = 0; frame < 60; ++frame) frames += "  File \"a.py\"\n";
  const std::string traceback = "Traceback (most recent call last):\n" + frames;
  const std::string lost = "Traceback (most recent call last):\nConnectionResetError: 104\n";
  const std::string direct =
      "\nThe above exception was the direct cause of the following exception:\n\n";
  const std::string during =
      "\nDuring handling of the above exception, another exception occurred:\n\n";
  for (const Row& row : {Row{"", "step 5\n", false}, Row{"", traceback + "ValueError: 5\n", true},
                         Row{"", traceback + "RuntimeError: Connection reset by peer\n", false},
                         Row{"", lost + direct + traceback + "TrainingError: step\n", false},
                         Row{"", lost + during + lost + direct + traceback + "MyError\n", false},
                         Row{"", lost + "step 6\n" + traceback + "ValueError: 5\n", true},
                         Row{"", traceback + "EOFError\n", false},
                         Row{"", traceback + "torch.distributed.DistNetworkError: got 0\n", false},
                         Row{R"({"message": "ValueError: 5"})", "", true},
                         Row{R"({"message": {"message": "TrainingError: step", "extraInfo":)"
                             R"( {"py_callstack": "Traceback (most recent call last):\n  File)"
                             R"( \"peer.py\"\nConnectionResetError\n\nThe above exception was the)"
                             R"( direct cause of the following exception:\n\nTraceback (most)"
                             R"( recent call last):\n  File \"a.py\"\nTrainingError: step\n"}}})",
                             "", false},
                         Row{R"({"message": "Broken pipe"})", traceback + "ValueError\n", false},
                         Row{R"({"message": {"message": "ValueError: rank 2 left",)"
                             R"( "extraInfo": {"left_peer": 2}}})",
                             "", false}}) {
    CAPTURE(row.error_file);
    CAPTURE(row.said);
    Fixture fixture;
    if (!row.error_file.empty()) fixture.Leave(0, row.error_file);
    const auto tail = [&](int, size_t, Duration) { return row.said; };
    const auto words = ReadLastWords({fixture.Dead(0)}, 1, tail, FolderOwner::kUser);
    CHECK(words.at(0).report.has_own_cause == row.has_own_cause);
    // Of a long one the last 50 lines are kept.
    CHECK(std::ranges::count(words.at(0).report.stderr_tail, '\n') <= 50);
    CHECK(row.said.ends_with(words.at(0).report.stderr_tail));
  }
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

TEST_CASE("last words: the note beside an error file holds where @record has written that anew") {
  Fixture fixture;
  fixture.Leave(0, R"({"message": {"message": "RuntimeError: ddp: barrier #5 failed", "extraInfo":)"
                   R"( {"py_callstack": "here", "timestamp": "17"}}})");
  fixture.Leave(1, "{");  // it was killed while it wrote; rank 2 of this node before it did
  // It caught the error, went on, and failed later of something else.
  fixture.Leave(3, R"({"message": "ValueError: boom", "timestamp": 17})");
  for (const int local_rank : {0, 1, 2, 3}) {
    std::ofstream(fixture.dir.File("error" + std::to_string(local_rank) + ".left_peer"))
        << R"({"message": {"message": "rank 3 left the job: barrier #5 failed", "extraInfo":)"
        << R"( {"left_peer": 3}}})";
  }
  const std::vector<LastWords> words =
      fixture.Read({fixture.Dead(0), fixture.Dead(1), fixture.Dead(2), fixture.Dead(3)});
  for (const LastWords& of_one : words) {
    CHECK(of_one.report.left_peer.has_value() == (of_one.report.local_rank != 3));
    CHECK(of_one.report.left_peer.value_or(3) == 3);
    CHECK_FALSE(std::ifstream(fixture.dir.File("error" + std::to_string(of_one.report.local_rank) +
                                               ".left_peer"))
                    .good());
  }
  CHECK(words[0].report.error ==
        rendezvous::WorkerError{"RuntimeError: ddp: barrier #5 failed", "here", 17});
  CHECK(words[3].report.has_own_cause);
  CHECK(words[0].report.error_file == fixture.dir.File("error0"));
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

TEST_CASE("last words: an error file that is too large is removed from our own folder alone") {
  Fixture fixture;
  const std::string huge(kMaxErrorFileBytes + 1, ' ');
  for (const int local_rank : {0, 1}) fixture.Leave(local_rank, huge);
  fixture.Leave(2, "{");
  const std::vector<LastWords> dead = {fixture.Dead(0), fixture.Dead(2, false),
                                       fixture.Dead(1, false)};
  const auto is_there = [&](int local_rank) {
    return std::ifstream(fixture.dir.File("error" + std::to_string(local_rank))).good();
  };
  const std::string named = "warning: the error file of rank 4, " + fixture.dir.File("error0") +
                            ", is larger than 1048576 bytes";
  LastWords words = fixture.Read(dead)[0];
  CHECK(words.warning == named);
  CHECK(words.report.error_file == fixture.dir.File("error0"));
  CHECK(is_there(0));
  // Where there is no room for texts as well.
  const std::vector<LastWords> ours = fixture.Read(dead, /*room=*/1, FolderOwner::kDdprun);
  CHECK(ours[0].warning == named + "; it is removed, as --log-dir names no folder to keep it in");
  CHECK(ours[0].report.error_file == "");
  CHECK_FALSE(is_there(0));
  CHECK(ours[2].warning == Contains("it is removed"));
  CHECK_FALSE(ours[2].is_left_out);
  CHECK_FALSE(is_there(1));
  CHECK(is_there(2));  // what is only broken can be looked at
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
  const auto tail = [](int, size_t, Duration) { return "\x1b[31mred\x1b[0m"; };
  const std::vector<LastWords> words =
      ReadLastWords({fixture.Dead(0)}, 1, tail, FolderOwner::kUser);
  CHECK(words[0].report.stderr_tail == "red");
  CHECK(words[0].report.error->message == "boom");
  CHECK(words[0].report.error->traceback == "at 3");
}

constexpr char kRecorded[] =
    R"({"message": {"message": "ValueError: boom\u001b \u00e9", "extraInfo": {"py_callstack": )"
    R"("Traceback (most recent call last):\n  File \"a.py\"\n", "timestamp": "1738324800"}}})";

absl::StatusOr<rendezvous::FailureReport> ReportIn(std::string_view text) {
  rendezvous::FailureReport report;
  const absl::Status status = ParseErrorText(text, report);
  if (!status.ok()) return status;
  return report;
}

absl::StatusOr<rendezvous::WorkerError> ErrorIn(std::string_view text) {
  const auto report = ReportIn(text);
  if (!report.ok()) return report.status();
  CHECK(report->left_peer == std::nullopt);
  return *report->error;
}

// An error file of @record's format with `value` as extraInfo.left_peer.
std::string WithLeftPeer(const std::string& value) {
  return R"({"message": {"message": "m", "extraInfo": {"py_callstack": "t", "timestamp": "7", )"
         R"("left_peer": )" +
         value + "}}}";
}

TEST_CASE("error file: the format of @record is read") {
  const auto error = ErrorIn(kRecorded);
  REQUIRE_MESSAGE(error.ok(), error.status().ToString());
  CHECK(error->message == "ValueError: boom\x1b \xc3\xa9");
  CHECK(error->traceback == "Traceback (most recent call last):\n  File \"a.py\"\n");
  CHECK(error->unix_time_s == 1738324800);
}

TEST_CASE("error file: the plain format is read") {
  const auto error = ErrorIn(R"({"message": "no data", "timestamp": 1738324800.9, "x": 1})");
  REQUIRE(error.ok());
  CHECK(*error == rendezvous::WorkerError{"no data", "", 1738324800});
}

TEST_CASE("error file: members that are missing or of another kind are left out") {
  for (const char* text :
       {R"({"message": {}})", R"({"message": {"message": 3, "extraInfo": 4}})",
        R"({"message": {"message": [], "extraInfo": {"py_callstack": {}, "timestamp": "soon"}}})",
        R"({"message": "", "timestamp": -5})", R"({"message": "", "timestamp": 1e300})",
        R"({"message": "", "timestamp": null})"}) {
    CAPTURE(text);
    const auto error = ErrorIn(text);
    REQUIRE(error.ok());
    CHECK(*error == rendezvous::WorkerError{});
  }
}

TEST_CASE("error file: the rank whose leaving ended the worker is read") {
  for (const int rank : {0, 1, 1 << 24}) {
    const auto content = ReportIn(WithLeftPeer(std::to_string(rank)));
    REQUIRE_MESSAGE(content.ok(), content.status().ToString());
    CHECK(content->left_peer == rank);
    CHECK(content->error == rendezvous::WorkerError{"m", "t", 7});
  }
}

TEST_CASE("error file: a left peer that is no rank is ignored, and nothing else with it") {
  for (const char* value :
       {"-1", "-0", "16777217", "4294967296", "18446744073709551615", "18446744073709551616",
        "-9223372036854775808", "1.0", "1e0", "\"1\"", "null", "true", "[1]", "{\"a\": 1}"}) {
    CAPTURE(value);
    const auto content = ReportIn(WithLeftPeer(value));
    REQUIRE_MESSAGE(content.ok(), content.status().ToString());
    CHECK(content->left_peer == std::nullopt);
    CHECK(content->error == rendezvous::WorkerError{"m", "t", 7});
  }
  for (const char* text : {R"({"message": "m", "left_peer": 1, "extraInfo": {"left_peer": 1}})",
                           R"({"message": {"message": "m", "left_peer": 1, "extraInfo": 1}})"}) {
    const auto content = ReportIn(text);
    REQUIRE(content.ok());
    CHECK(content->left_peer == std::nullopt);
  }
}

TEST_CASE("error file: what cannot be read says why in one line") {
  struct Row {
    std::string text;
    const char* why;
  };
  const std::string deep =
      R"({"message": "x", "a": )" + std::string(100, '[') + std::string(100, ']') + "}";
  const Row rows[] = {
      {"", "is no valid JSON"},
      {std::string(kRecorded).substr(0, 60), "is no valid JSON"},
      {std::string("{\"message\": \"a\0b\"}", 18), "is no valid JSON"},
      {std::string(40, '\0'), "is no valid JSON"},
      {"{\"message\": \"\xff\xfe\"}", "is no valid JSON"},
      {"[1]", "is no JSON object"},
      {"{}", "has no \"message\""},
      {R"({"message": 5})", "has no \"message\""},
      {deep, "is nested deeper than 32"},
      {std::string(500000, '['), "is nested deeper than 32"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text.substr(0, 80));
    const auto error = ErrorIn(row.text);
    CHECK(error.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(error.status().message()) == row.why);
    CHECK_FALSE(ErrorTextForParent(row.text, 1).ok());
  }
}

TEST_CASE("error file: half a surrogate pair, as Python writes a broken file name, is replaced") {
  const auto error =
      ErrorIn(R"({"message": "\udcff \ud83d\ude00 \ud83d \\udcff \ud83dx\\\udc00"})");
  REQUIRE_MESSAGE(error.ok(), error.status().ToString());
  CHECK(error->message ==
        "\xef\xbf\xbd \xf0\x9f\x98\x80 \xef\xbf\xbd \\udcff \xef\xbf\xbdx\\\xef\xbf\xbd");
  CHECK(ReportIn(R"({"message": "\ud83d)").status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("error file: long texts keep both ends") {
  std::string text = R"({"message": {"message": ")" + std::string(9000, 'm') +
                     R"(", "extraInfo": {"py_callstack": "first)" + std::string(99000, 't') +
                     R"(last"}}})";
  const auto error = ErrorIn(text);
  REQUIRE(error.ok());
  CHECK(error->message.size() <= kMaxErrorMessageBytes);
  CHECK(error->traceback.size() <= kMaxTracebackBytes);
  CHECK(error->traceback.rfind("firstttt", 0) == 0);
  CHECK(error->traceback == Contains("ttt\n... 66305 bytes left out ...\nttt"));
  CHECK(error->traceback.substr(error->traceback.size() - 5) == "tlast");
}

TEST_CASE("error file: random bytes in a good file do no harm") {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string text = kRecorded;
    for (int k = 0; k < 3; ++k) text[random() % text.size()] = static_cast<char>(random());
    const auto error = ErrorIn(text);
    if (error.ok()) CHECK(error->traceback.size() < text.size());
  }
}

TEST_CASE("error file: the parent's copy carries the exit code where message is an object") {
  const auto copy = ErrorTextForParent(kRecorded, -9);
  REQUIRE(copy.ok());
  CHECK(*copy ==
        R"({"message":{"message":"ValueError: boom\u001b \u00e9","extraInfo":{"py_callstack":)"
        R"("Traceback (most recent call last):\n  File \"a.py\"\n","timestamp":"1738324800"},)"
        R"("errorCode":-9}})");
  CHECK(*ErrorTextForParent(R"({"message": "m", "timestamp": 7})", 3) ==
        R"({"message":"m","timestamp":7})");
}

TEST_CASE("error file: the parent's copy names no left peer, whose rank is of another job") {
  CHECK(*ErrorTextForParent(WithLeftPeer("1"), 1) ==
        R"({"message":{"message":"m","extraInfo":{"py_callstack":"t","timestamp":"7"},)"
        R"("errorCode":1}})");
}

TEST_CASE("error file: only a regular file that is not too large is read") {
  const testing::TempDir dir;
  const std::string file = dir.File("error.json");
  CHECK(absl::IsNotFound(ReadErrorFile(file).status()));
  std::ofstream(file).close();
  CHECK(absl::IsNotFound(ReadErrorFile(file).status()));
  std::ofstream(file) << kRecorded;
  CHECK(*ReadErrorFile(file) == kRecorded);
  CHECK(absl::IsNotFound(ReadErrorFile(file + "/x").status()));

  const auto why = [](const std::string& path) {
    return std::string(ReadErrorFile(path).status().message());
  };
  REQUIRE(symlink(file.c_str(), dir.File("link").c_str()) == 0);
  CHECK(why(dir.File("link")) == "is a symbolic link");
  REQUIRE(mkfifo(dir.File("fifo").c_str(), 0600) == 0);
  CHECK(why(dir.File("fifo")) == "is no regular file");
  CHECK(why(dir.path().string()) == "is no regular file");
  CHECK(why("/dev/zero") == "is no regular file");
  std::ofstream(dir.File("large")) << std::string(kMaxErrorFileBytes + 1, ' ');
  CHECK(why(dir.File("large")) == "is larger than 1048576 bytes");
  // No memory has room for all of this one.
  std::filesystem::resize_file(dir.File("large"), uintmax_t{1} << 40);
  CHECK(why(dir.File("large")) == "is larger than 1048576 bytes");
}

TEST_CASE("error file: what another node's worker said is written so that it is read again") {
  const rendezvous::WorkerError error{
      .message = "ValueError: \xc3\xa9\n", .traceback = "a\n  \"b\"\n", .unix_time_s = 1738324800};
  const std::string text = ErrorTextOf(error, -9);
  CHECK(text == Contains("\"errorCode\":-9"));
  const auto read = ErrorIn(text);
  REQUIRE(read.ok());
  CHECK(read->message == error.message);
  CHECK(read->traceback == error.traceback);
  CHECK(read->unix_time_s == error.unix_time_s);
}

}  // namespace
}  // namespace ddprun::launcher
