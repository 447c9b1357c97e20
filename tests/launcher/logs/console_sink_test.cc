#include "launcher/logs/console_sink.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <sstream>
#include <string>

#include "tests/launcher/logs/file_size_limit.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using std::chrono::milliseconds;

constexpr TimePoint At(int ms) { return TimePoint(milliseconds(ms)); }

struct Pipe {
  Pipe() {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    read_end.Reset(ends[0]);
    write_end.Reset(ends[1]);
  }
  // What is there now.
  std::string Read() {
    fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
    std::string out;
    char buffer[65536];
    for (ssize_t n; (n = read(read_end.get(), buffer, sizeof(buffer))) > 0;) {
      out.append(buffer, static_cast<size_t>(n));
    }
    return out;
  }
  UniqueFd read_end;
  UniqueFd write_end;
};

// Fills the queue far beyond the high water mark with numbered lines; their number.
int Fill(ConsoleSink& sink, size_t bytes) {
  int lines = 0;
  for (size_t done = 0; done < bytes; done += 100, ++lines) {
    std::string line = std::to_string(lines);
    line.resize(96, '.');
    sink.AppendLine("p: ", line, "");
  }
  return lines;
}

// Reads and flushes until the queue is empty.
std::string Consume(ConsoleSink& sink, Pipe& pipe, TimePoint now) {
  std::string out;
  do {
    out += pipe.Read();
    sink.Flush(now);
  } while (sink.queued() > 0);
  return out + pipe.Read();
}

TEST_CASE("console: lines with their prefix, raw bytes as they are, messages on their own line") {
  Pipe pipe;
  ConsoleSink sink(pipe.write_end.get());
  ConsoleSink::Cursor cursor;
  sink.AppendLine("[default0]:", "hello", "");
  sink.AppendRaw(cursor, "10%\r");
  sink.AppendRaw(cursor, std::string_view("\x1b[1m\0", 5));
  sink.AppendMessage("ddprun: says");
  sink.Flush(At(0));
  CHECK(pipe.Read() ==
        "[default0]:hello\n10%\r" + std::string("\x1b[1m\0", 5) + "\nddprun: says\n");
}

TEST_CASE("console: the descriptor's own flags are left alone, others share them") {
  Pipe pipe;
  ConsoleSink sink(pipe.write_end.get());
  Fill(sink, 200000);
  sink.Flush(At(0));  // does not hang although nobody reads
  CHECK(sink.queued() > 0);
  CHECK((fcntl(pipe.write_end.get(), F_GETFL) & O_NONBLOCK) == 0);
}

TEST_CASE("console: a slow reader makes the sources wait for a while and loses nothing") {
  Pipe pipe;
  ConsoleSink sink(pipe.write_end.get());
  const int lines = Fill(sink, 900000);
  sink.Flush(At(0));
  CHECK(sink.should_wait());
  CHECK(sink.NextDeadline() == At(200));

  const std::string out = Consume(sink, pipe, At(199));

  CHECK_FALSE(sink.should_wait());
  CHECK(sink.NextDeadline() == TimePoint::max());
  CHECK(sink.dropped_lines() == 0);
  CHECK(std::count(out.begin(), out.end(), '\n') == lines);
}

TEST_CASE("console: a stopped reader costs whole lines, counted, told of when it reads again") {
  Pipe pipe;
  ConsoleSink sink(pipe.write_end.get());
  Fill(sink, 900000);
  sink.Flush(At(0));
  sink.Flush(At(200));
  CHECK_FALSE(sink.should_wait());  // stalled: nobody waits for it any more
  const int lines = Fill(sink, 4000000);
  sink.Flush(At(300));
  CHECK(sink.queued() <= ConsoleSink::kCapacity);
  CHECK(sink.dropped_lines() > 30000);
  CHECK_FALSE(sink.should_wait());

  const uint64_t dropped = sink.dropped_lines();
  const std::string out = Consume(sink, pipe, At(400));

  std::istringstream in(out);
  std::string line;
  std::string last;
  int whole = 0;
  while (std::getline(in, line)) {
    if (line.rfind("p: ", 0) == 0 && line.size() == 99) ++whole;
    last = line;
  }
  CHECK(whole + dropped == static_cast<uint64_t>(lines) + 9000);
  CHECK(last == "ddprun: " + std::to_string(dropped) +
                    " lines are missing here: the reader of this output had stopped");
}

TEST_CASE("console: a message of ours has room when workers have filled it") {
  Pipe pipe;
  ConsoleSink sink(pipe.write_end.get());
  Fill(sink, 4000000);
  sink.Flush(At(0));
  const uint64_t dropped = sink.dropped_lines();
  CHECK(dropped > 20000);

  const std::string report(ConsoleSink::kReserve - 2, 'r');
  sink.AppendMessage(report);
  CHECK(sink.dropped_lines() == dropped);
  sink.AppendLine("p: ", "a worker's line", "");
  CHECK(sink.dropped_lines() == dropped + 1);
  sink.AppendMessage(report);  // the reserve has an end, too
  CHECK(sink.dropped_lines() == dropped + 2);

  const std::string out = Consume(sink, pipe, At(400));
  CHECK(out == Contains("\n" + report + "\n"));
}

TEST_CASE("console: raw bytes without room are dropped up to the end of their line") {
  Pipe pipe;
  ConsoleSink sink(pipe.write_end.get());
  ConsoleSink::Cursor cursor;
  const std::string block(ConsoleSink::kCapacity - 10, 'x');
  sink.AppendRaw(cursor, block + "\n");
  sink.AppendRaw(cursor, "short\nthis one does not fi");
  sink.AppendRaw(cursor, "t\nnor this\n");
  sink.AppendRaw(cursor, "a\n");
  CHECK(sink.dropped_lines() == 2);
  const std::string out = Consume(sink, pipe, At(0));
  CHECK(out.substr(block.size(), 9) == "\nshort\na\n");
}

TEST_CASE("console: an unfinished line and its rest are one line, with one prefix") {
  Pipe pipe;
  ConsoleSink sink(pipe.write_end.get());
  CHECK(sink.AppendUnfinished(7, "p: ", "name? "));
  sink.Flush(At(0));
  CHECK(pipe.Read() == "p: name? ");
  CHECK(sink.AppendUnfinished(7, "p: ", "."));
  sink.AppendLine("p: ", "name? .bob", "+", 7, 7);
  sink.AppendLine("p: ", "next", "", 7);
  sink.Flush(At(0));
  CHECK(pipe.Read() == ".bob+\np: next\n");
}

TEST_CASE("console: who else writes ends an unfinished line first, its rest begins a new one") {
  const auto between = [](const auto& write) {
    Pipe pipe;
    ConsoleSink sink(pipe.write_end.get());
    sink.AppendUnfinished(7, "p: ", "abc");
    write(sink);
    sink.AppendLine("p: ", "abcdef", "", 7, 3);
    sink.Flush(At(0));
    return pipe.Read();
  };
  ConsoleSink::Cursor cursor;
  CHECK(between([](ConsoleSink& sink) { sink.AppendLine("q: ", "x", "", 8); }) ==
        "p: abc\nq: x\np: def\n");
  CHECK(between([](ConsoleSink& sink) { sink.AppendUnfinished(8, "q: ", "x"); }) ==
        "p: abc\nq: x\np: def\n");
  CHECK(between([&](ConsoleSink& sink) { sink.AppendRaw(cursor, "x\n"); }) ==
        "p: abc\nx\np: def\n");
  CHECK(between([](ConsoleSink& sink) { sink.AppendMessage("x"); }) == "p: abc\nx\np: def\n");
  CHECK(between([](ConsoleSink& sink) { CHECK(sink.EndLine()); }) == "p: abc\np: def\n");
}

TEST_CASE("console: a line that another has ended, and of which no more came, is one line") {
  Pipe pipe;
  ConsoleSink sink(pipe.write_end.get());
  sink.AppendUnfinished(7, "p: ", "abc");
  CHECK(sink.EndLine());
  CHECK_FALSE(sink.EndLine());
  sink.AppendLine("p: ", "abc", "", 7, 3);
  sink.AppendUnfinished(7, "p: ", "dots");
  sink.AppendLine("p: ", "dots", "", 7, 4);
  sink.Flush(At(0));
  CHECK(pipe.Read() == "p: abc\np: dots\n");
}

TEST_CASE("console: an unfinished line without room waits, one without room for its rest ends") {
  Pipe pipe;
  ConsoleSink sink(pipe.write_end.get());
  sink.AppendUnfinished(7, "p: ", "abc");
  const std::string much(ConsoleSink::kCapacity - 5, 'x');
  CHECK_FALSE(sink.AppendUnfinished(7, "p: ", much));
  CHECK_FALSE(sink.AppendUnfinished(8, "q: ", much));
  CHECK(sink.dropped_lines() == 0);
  sink.AppendLine("p: ", "abc" + much, "", 7, 3);
  CHECK(sink.dropped_lines() == 1);
  sink.AppendLine("p: ", "next", "", 7);
  const std::string out = Consume(sink, pipe, At(0));
  CHECK(out == Contains("p: abc\np: next\n"));
}

TEST_CASE("console: an unfinished line that a full disk took in part counts as missing once") {
  const testing::TempDir dir;
  const UniqueFd file(open(dir.File("out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ConsoleSink sink(file.get());
  {
    const FileSizeLimit limit(4);
    sink.AppendUnfinished(7, "p: ", "abc");
    sink.Flush(At(0));
    CHECK(sink.dropped_lines() == 1);
  }
  sink.AppendLine("p: ", "abcdef", "", 7, 3);
  sink.Flush(At(0));
  CHECK(testing::ReadFile(dir.File("out")) == "p: a\np: def\n");
  CHECK(sink.refused_lines() == 1);
}

TEST_CASE("console: a reader that has gone is no reason to end") {
  const auto handler = std::signal(SIGPIPE, SIG_IGN);  // blocked in the log thread
  Pipe pipe;
  ConsoleSink sink(pipe.write_end.get());
  pipe.read_end.Reset();
  ConsoleSink::Cursor cursor;
  Fill(sink, 1000);
  sink.Flush(At(0));
  sink.AppendRaw(cursor, "a\nb\n");
  sink.AppendMessage("m");
  sink.Flush(At(1));
  CHECK(sink.queued() == 0);
  CHECK(sink.dropped_lines() == 13);
  CHECK(sink.refused_lines() == 0);  // who closed the pipe is told once, when it happens
  CHECK(sink.TakeBreak() == EPIPE);
  CHECK(sink.TakeBreak() == 0);
  std::signal(SIGPIPE, handler);
}

TEST_CASE("console: a full device drops and counts") {
  const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  ConsoleSink sink(full.get());
  const int lines = Fill(sink, 1000);
  sink.Flush(At(0));
  CHECK(sink.queued() == 0);
  CHECK(sink.dropped_lines() == static_cast<uint64_t>(lines));
  CHECK(sink.refused_lines() == sink.dropped_lines());
  CHECK(sink.last_error() == ENOSPC);
  CHECK(sink.TakeBreak() == 0);  // counted, and told at the end
}

TEST_CASE("console: after a full disk what comes next begins a line of its own") {
  const testing::TempDir dir;
  const UniqueFd file(open(dir.File("out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ConsoleSink sink(file.get());
  {
    const FileSizeLimit limit(10);
    for (const char* text : {"1234567", "torn", "lost"}) {
      sink.AppendLine("", text, "");
      sink.Flush(At(0));
    }
    sink.AppendMessage("lost, too");
    sink.Flush(At(0));
  }
  sink.AppendLine("", "new", "");
  sink.AppendLine("", "and", "");
  sink.Flush(At(0));
  CHECK(testing::ReadFile(dir.File("out")) == "1234567\nto\nnew\nand\n");
  CHECK(sink.dropped_lines() == 3);
  CHECK(sink.refused_lines() == 3);
  CHECK(sink.last_error() == EFBIG);
}

TEST_CASE("console: a closed descriptor drops and counts") {
  ConsoleSink sink(-1);
  sink.AppendLine("", "x", "");
  sink.Flush(At(0));
  CHECK(sink.dropped_lines() == 1);
  CHECK(sink.poll_fd() == -1);
  CHECK(sink.TakeBreak() == 0);  // whoever started us chose that
}

TEST_CASE("console: a file is written at the offset that others share") {
  const testing::TempDir dir;
  const UniqueFd file(open(dir.File("out").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(write(file.get(), "before\n", 7) == 7);
  ConsoleSink sink(file.get());
  sink.AppendLine("", "ours", "");
  sink.Flush(At(0));
  REQUIRE(write(file.get(), "after\n", 6) == 6);
  CHECK(testing::ReadFile(dir.File("out")) == "before\nours\nafter\n");
}

TEST_CASE("console: a socket is written without waiting") {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  ConsoleSink sink(ours.get());
  Fill(sink, 900000);
  sink.Flush(At(0));
  CHECK(sink.queued() > 0);
  char buffer[3];
  REQUIRE(read(theirs.get(), buffer, 3) == 3);
  CHECK(std::string(buffer, 3) == "p: ");
  theirs.Reset();
  sink.Flush(At(1));  // EPIPE, and no SIGPIPE
  CHECK(sink.queued() == 0);
}

}  // namespace
}  // namespace ddprun::launcher
