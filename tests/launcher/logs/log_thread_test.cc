#include "launcher/logs/log_thread.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/logs/file_sink.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;

constexpr int kPipeBytes = 1024 * 1024;

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
    read_end.Reset(ends[0]);
    write_end.Reset(ends[1]);
  }
  UniqueFd read_end;
  UniqueFd write_end;
};

std::shared_ptr<LogFiles::File> MakeFile(UniqueFd fd, const std::string& path) {
  return std::make_shared<LogFiles::File>(FileSink(std::move(fd), path));
}

TEST_CASE(
    "log thread: one whose file does not answer is left at its deadline, and names the file") {
  Pipe disk;  // full, and nobody reads it
  REQUIRE(fcntl(disk.write_end.get(), F_SETFL, O_NONBLOCK) == 0);
  const std::string much(4096, 'x');
  while (write(disk.write_end.get(), much.data(), much.size()) > 0) {
  }
  REQUIRE(fcntl(disk.write_end.get(), F_SETFL, 0) == 0);
  Pipe console;
  auto started = LogThread::Start(console.write_end.get(), console.write_end.get());
  REQUIRE(started.ok());
  // Never destroyed: the thread uses it after the test.
  static LogThread* const thread = started->release();

  Pipe channel;
  REQUIRE(fcntl(channel.read_end.get(), F_SETFL, O_NONBLOCK) == 0);
  StreamPlan plan{.is_stderr = true, .read_end = std::move(channel.read_end)};
  plan.file = MakeFile(std::move(disk.write_end), "/dead/stderr.log");
  thread->Add(std::move(plan));
  REQUIRE(write(channel.write_end.get(), "line\n", 5) == 5);

  constexpr Duration kAWhile = 100ms;  // lower bound: the file never answers
  CHECK_FALSE(thread->Drain(kAWhile));
  // It got the line a moment later.
  const TimePoint before = SteadyNow();
  while (thread->busy_file(kAWhile).empty() && SteadyNow() - before < 20s)
    std::this_thread::yield();
  CHECK(thread->busy_file(kAWhile) == "/dead/stderr.log");
  CHECK_FALSE(thread->End(kAWhile));
  CHECK(SteadyNow() - before < 40s);
}

TEST_CASE("log thread: a file on a full disk is told of when it happens, and once") {
  Pipe console;
  auto thread = LogThread::Start(console.write_end.get(), console.write_end.get());
  REQUIRE(thread.ok());
  Pipe channel;
  REQUIRE(fcntl(channel.read_end.get(), F_SETFL, O_NONBLOCK) == 0);
  StreamPlan plan{.is_stderr = true, .read_end = std::move(channel.read_end)};
  plan.file =
      MakeFile(UniqueFd(open("/dev/full", O_WRONLY | O_CLOEXEC)), "/logs/attempt_0/0/stderr.log");
  (*thread)->Add(std::move(plan));
  const std::string told =
      "ddprun: warning: write log file /logs/attempt_0/0/stderr.log: No space left on device; the "
      "workers go on, and lines are missing there, as in other files that have no room: make room, "
      "or choose another place with --log-dir\n";
  std::array<char, 4096> buffer;
  // The worker lives.
  REQUIRE(write(channel.write_end.get(), "one\n", 4) == 4);
  pollfd said{.fd = console.read_end.get(), .events = POLLIN, .revents = 0};
  REQUIRE(poll(&said, 1, 20'000) == 1);
  const ssize_t length = read(console.read_end.get(), buffer.data(), buffer.size());
  REQUIRE(length > 0);
  CHECK(std::string(buffer.data(), static_cast<size_t>(length)) == told);

  REQUIRE(write(channel.write_end.get(), "two\n", 4) == 4);
  channel.write_end.Reset();
  CHECK((*thread)->Drain(20s));
  CHECK((*thread)->losses().file_lines == 2);
  REQUIRE((*thread)->End(20s));
  thread->reset();
  REQUIRE(fcntl(console.read_end.get(), F_SETFL, O_NONBLOCK) == 0);
  CHECK(read(console.read_end.get(), buffer.data(), buffer.size()) == -1);  // no more is said
}

// What is read until `text` has come or 20 s are over.
std::string ReadUntil(const UniqueFd& fd, const std::string& text) {
  std::string read_so_far;
  const TimePoint until = SteadyNow() + 20s;
  while (read_so_far.find(text) == std::string::npos && SteadyNow() < until) {
    pollfd ready{.fd = fd.get(), .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, PollTimeout(until)) != 1) break;
    char buffer[256];
    const ssize_t length = read(fd.get(), buffer, sizeof buffer);
    if (length <= 0) break;
    read_so_far.append(buffer, static_cast<size_t>(length));
  }
  return read_so_far;
}

// A worker's stream that reaches the console in lines.
void AddLines(LogThread& thread, int local_rank, bool is_stderr, const std::string& prefix,
              UniqueFd read_end) {
  REQUIRE(fcntl(read_end.get(), F_SETFL, O_NONBLOCK) == 0);
  thread.Add({.local_rank = local_rank,
              .is_stderr = is_stderr,
              .read_end = std::move(read_end),
              .console = StreamPlan::Console::kLines,
              .prefix = prefix});
}

UniqueFd AddLines(LogThread& thread, int local_rank, bool is_stderr, const std::string& prefix) {
  Pipe channel;
  AddLines(thread, local_rank, is_stderr, prefix, std::move(channel.read_end));
  return std::move(channel.write_end);
}

void Write(const UniqueFd& fd, const std::string& text) {
  REQUIRE(write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

TEST_CASE("log thread: a prompt is shown before its line ends, and nothing is written into it") {
  Pipe console;
  auto thread = LogThread::Start(console.write_end.get(), console.write_end.get());
  REQUIRE(thread.ok());
  const UniqueFd out = AddLines(**thread, 0, false, "0: ");
  const UniqueFd err = AddLines(**thread, 0, true, "0e: ");
  const UniqueFd other = AddLines(**thread, 1, false, "1: ");
  const testing::TempDir dir;
  const std::string copies = dir.File("copies");
  (*thread)->SetCopies(
      false, LineFilter({"name? bob", ". done"}),
      MakeFile(UniqueFd(open(copies.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)), copies));
  Write(out, "name? ");
  CHECK(ReadUntil(console.read_end, "? ") == "0: name? ");
  Write(out, "bob\n");
  CHECK(ReadUntil(console.read_end, "\n") == "bob\n");
  Write(out, ".");
  CHECK(ReadUntil(console.read_end, ".") == "0: .");
  Write(other, "x");
  CHECK(ReadUntil(console.read_end, "x") == "\n1: x");
  Write(err, "y");  // the other stream, to the same place
  CHECK(ReadUntil(console.read_end, "y") == "\n0e: y");
  Write(out, ".");
  CHECK(ReadUntil(console.read_end, ".") == "\n0: .");
  (*thread)->Say("ddprun: says");
  CHECK(ReadUntil(console.read_end, "says\n") == "\nddprun: says\n");
  Write(out, " done\n");
  CHECK(ReadUntil(console.read_end, "\n") == "0:  done\n");
  CHECK((*thread)->End(20s));
  CHECK(testing::ReadFile(copies) == "0: name? bob\n0: .. done\n");  // whole lines
}

TEST_CASE("log thread: a line that has come whole stays whole though the thread is late") {
  Pipe console;
  REQUIRE(fcntl(console.write_end.get(), F_SETPIPE_SZ, kPipeBytes) >= 0);
  auto thread = LogThread::Start(console.write_end.get(), console.write_end.get());
  REQUIRE(thread.ok());
  // To look for so many texts in each line takes the thread far longer than kPatience.
  constexpr size_t kTexts = 50000;
  const testing::TempDir dir;
  const std::string copies = dir.File("copies");
  (*thread)->SetCopies(
      false, LineFilter(std::vector<std::string>(kTexts, "#")),
      MakeFile(UniqueFd(open(copies.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)), copies));
  // One turn of the thread reads 256 KiB, which end within the sixth line.
  std::string lines, expected;
  for (const char letter : std::string("abcdef")) {
    const std::string line = std::string(48 * 1024, letter) + "\n";
    lines += line;
    expected += "0: " + line;
  }
  Pipe channel;
  REQUIRE(fcntl(channel.write_end.get(), F_SETPIPE_SZ, kPipeBytes) >= 0);
  Write(channel.write_end, lines);
  const TimePoint before = SteadyNow();
  AddLines(**thread, 0, false, "0: ", std::move(channel.read_end));
  while ((*thread)->last_output_at() <= before && SteadyNow() < before + 20s)
    std::this_thread::yield();
  const std::string message = "ddprun: says\n";
  (*thread)->Say(message.substr(0, message.size() - 1));
  channel.write_end.Reset();
  CHECK((*thread)->Drain(20s));
  CHECK((*thread)->End(20s));
  std::string shown(kPipeBytes, '\0');
  const ssize_t length = read(console.read_end.get(), shown.data(), shown.size());
  REQUIRE(length > 0);
  shown.resize(static_cast<size_t>(length));
  const size_t at = shown.find(message);
  REQUIRE(at != std::string::npos);
  CHECK((shown.erase(at, message.size()) == expected));
}

TEST_CASE("log thread: one that nothing holds ends, and names no file") {
  Pipe console;
  auto started = LogThread::Start(console.write_end.get(), console.write_end.get());
  REQUIRE(started.ok());
  (*started)->Say("a line");
  CHECK((*started)->End(20s));
  CHECK((*started)->busy_file(0ms).empty());
}

}  // namespace
}  // namespace ddprun::launcher
