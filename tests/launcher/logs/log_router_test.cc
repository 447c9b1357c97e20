#include "launcher/logs/log_router.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "launcher/logs/output_channel.h"
#include "rendezvous/base/durable_file.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A console that is read all the time, by a thread of its own. ReadToEnd() after the router went.
class Console {
 public:
  Console() {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    read_end_.Reset(ends[0]);
    write_end_.Reset(ends[1]);
    reader_ = std::thread([this] {
      char buffer[65536];
      ssize_t n;
      while ((n = read(read_end_.get(), buffer, sizeof(buffer))) != 0) {
        if (n > 0) text_.append(buffer, static_cast<size_t>(n));
        if (n < 0 && errno != EINTR) return;
      }
    });
  }
  ~Console() {
    write_end_.Reset();
    if (reader_.joinable()) reader_.join();
  }
  int fd() const { return write_end_.get(); }
  std::string ReadToEnd() {
    write_end_.Reset();
    reader_.join();
    return text_;
  }

 private:
  UniqueFd read_end_;
  UniqueFd write_end_;
  std::string text_;
  std::thread reader_;
};

struct Fixture {
  testing::TempDir dir;
  Console out;
  Console err;
  std::unique_ptr<LogRouter> router;

  LogOptions Options() {
    LogOptions options;
    options.log_dir = dir.File("logs");
    options.temp_dir = options.memory_dir = dir.path().string();
    options.stdout_fd = out.fd();
    options.stderr_fd = err.fd();
    return options;
  }
  void Start(LogOptions options) {
    auto created = LogRouter::Create(std::move(options));
    INFO("status: ", created.status().ToString());
    REQUIRE(created.ok());
    router = *std::move(created);
    router->BeginRound(0);
  }
  WorkerStdio Open(int local_rank, int rank) {
    auto stdio = router->OpenWorker(local_rank, rank);
    INFO("status: ", stdio.status().ToString());
    REQUIRE(stdio.ok());
    return *std::move(stdio);
  }
  std::string FileOf(const std::string& name) const {
    const std::string path = router->run_folder() + "/" + name;
    CHECK_MESSAGE(std::filesystem::exists(path), path);
    return testing::ReadFile(path);
  }
};

void WriteAll(int fd, std::string_view bytes) {
  REQUIRE(ddprun::WriteAll(fd, {bytes.data(), bytes.size()}, "a worker's stream").ok());
}

constexpr Streams kBoth = {.out = true, .err = true};

TEST_CASE("log router: without -r and -t stdout is inherited and stderr passes byte for byte") {
  Fixture f;
  LogOptions options = f.Options();
  options.log_dir = "";
  f.Start(options);
  WorkerStdio stdio = f.Open(0, 4);
  CHECK_FALSE(stdio.stdout_fd.is_open());
  REQUIRE(stdio.stderr_fd.is_open());
  const std::string bytes("10%\r20%\0\xff\x1b[1m\nno end", 20);
  WriteAll(stdio.stderr_fd.get(), bytes);

  CHECK(f.router->StderrTail(0, 50, seconds(20)) == bytes);
  CHECK(f.router->StderrTail(0, 1, seconds(20)) == "no end");
  CHECK(f.router->StderrTail(1, 1, seconds(20)) == "");

  CHECK(std::filesystem::path(stdio.error_file).filename() == "error.json");
  CHECK(std::filesystem::is_directory(std::filesystem::path(stdio.error_file).parent_path()));
  stdio = {};
  CHECK(f.router->Drain(seconds(20)));
  f.router.reset();
  CHECK(f.err.ReadToEnd() == bytes);
  CHECK(f.out.ReadToEnd() == "");
  CHECK(std::filesystem::is_empty(f.dir.path()));  // nothing is left where nothing was asked for
}

TEST_CASE("log router: DDPRUN_STDERR=inherit leaves stderr alone") {
  Fixture f;
  LogOptions options = f.Options();
  options.inherit_stderr = true;
  f.Start(options);
  CHECK_FALSE(f.Open(0, 0).stderr_fd.is_open());
  CHECK(f.router->StderrTail(0, 50, seconds(20)) == "");
  CHECK(f.router->Drain(seconds(20)));
}

TEST_CASE("log router: redirected streams go to files only, byte for byte, each in its place") {
  Fixture f;
  LogOptions options = f.Options();
  options.redirects.by_local_rank = {{0, kBoth}, {11, {.out = true, .err = false}}};
  f.Start(options);
  {
    const WorkerStdio first = f.Open(0, 20);
    const WorkerStdio second = f.Open(11, 31);
    WriteAll(first.stdout_fd.get(), std::string("a\r\n\0b", 5));
    WriteAll(first.stderr_fd.get(), "error\n");
    WriteAll(second.stdout_fd.get(), "eleven\n");
    WriteAll(second.stderr_fd.get(), "seen\n");
    CHECK(f.router->StderrTail(0, 50, seconds(20)) == "error\n");
  }
  CHECK(f.router->Drain(seconds(20)));
  CHECK(f.FileOf("attempt_0/0/stdout.log") == std::string("a\r\n\0b", 5));
  CHECK(f.FileOf("attempt_0/0/stderr.log") == "error\n");
  CHECK(f.FileOf("attempt_0/11/stdout.log") == "eleven\n");
  f.router.reset();
  CHECK(f.out.ReadToEnd() == "");
  CHECK(f.err.ReadToEnd() == "seen\n");
}

TEST_CASE("log router: tee'd streams go to the file as they are and to the console in lines") {
  Fixture f;
  LogOptions options = f.Options();
  options.tee.everyone = kBoth;
  options.role = "trainer";
  f.Start(options);
  {
    const WorkerStdio stdio = f.Open(3, 7);
    for (const char* part : {"he", "llo\nwor", "ld\r\nrest"}) {
      WriteAll(stdio.stdout_fd.get(), part);
    }
    WriteAll(stdio.stderr_fd.get(), "oops\n");
  }
  CHECK(f.router->Drain(seconds(20)));
  CHECK(f.FileOf("attempt_0/3/stdout.log") == "hello\nworld\r\nrest");
  CHECK(f.FileOf("attempt_0/3/stderr.log") == "oops\n");
  f.router.reset();
  CHECK(f.out.ReadToEnd() == "[trainer3]:hello\n[trainer3]:world\n[trainer3]:rest\n");
  CHECK(f.err.ReadToEnd() == "[trainer3]:oops\n");
}

TEST_CASE("log router: the prefix follows its template") {
  Fixture f;
  LogOptions options = f.Options();
  options.tee.everyone = kBoth;
  options.prefix_template = "${role_name}/${rank}/${local_rank}/${other}: ";
  f.Start(options);
  WriteAll(f.Open(1, 5).stdout_fd.get(), "x\n");
  CHECK(f.router->Drain(seconds(20)));
  f.router.reset();
  CHECK(f.out.ReadToEnd() == "default/5/1/${other}: x\n");
}

TEST_CASE("log router: a round of the same restart count gets files of its own") {
  Fixture f;
  LogOptions options = f.Options();
  options.redirects.everyone = {.out = false, .err = true};
  f.Start(options);
  WorkerStdio straggler = f.Open(0, 0);
  WriteAll(straggler.stderr_fd.get(), "first\n");
  f.router->BeginRound(0);  // reads the channel empty and closes it although it has a writer
  CHECK(f.router->StderrTail(0, 50, seconds(20)) == "");
  WriteAll(f.Open(0, 0).stderr_fd.get(), "second\n");
  f.router->BeginRound(1);
  WriteAll(f.Open(0, 0).stderr_fd.get(), "third\n");
  CHECK(f.router->Drain(seconds(20)));
  CHECK(f.FileOf("attempt_0/0/stderr.log") == "first\n");
  CHECK(f.FileOf("attempt_0.1/0/stderr.log") == "second\n");
  CHECK(f.FileOf("attempt_1/0/stderr.log") == "third\n");
}

TEST_CASE("log router: the tail is complete although a grandchild holds the channel") {
  Fixture f;
  f.Start(f.Options());
  const WorkerStdio held = f.Open(0, 0);  // stands for the grandchild
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "line " + std::to_string(i) + "\n";
  WriteAll(held.stderr_fd.get(), text);
  const std::string tail = f.router->StderrTail(0, 2, seconds(20));
  CHECK(tail == "line 4998\nline 4999\n");
  CHECK_FALSE(f.router->Drain(milliseconds(1)));  // lower bound: it may go on writing
}

TEST_CASE("log router: half a million lines reach file and console, none lost") {
  Fixture f;
  LogOptions options = f.Options();
  options.tee.everyone = kBoth;
  f.Start(options);
  constexpr int kLines = 125000;
  std::vector<std::thread> workers;
  for (int local_rank = 0; local_rank < 4; ++local_rank) {
    workers.emplace_back([stdio = f.Open(local_rank, local_rank), local_rank] {
      std::string chunk;
      for (int i = 0; i < kLines; ++i) {
        chunk += "step " + std::to_string(i) + " of " + std::to_string(local_rank) + "\n";
        if (chunk.size() < 5000 && i + 1 < kLines) continue;
        WriteAll(local_rank % 2 == 0 ? stdio.stdout_fd.get() : stdio.stderr_fd.get(), chunk);
        chunk.clear();
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  workers.clear();
  CHECK(f.router->Drain(seconds(30)));
  CHECK(f.router->losses().file_lines == 0);
  const uint64_t dropped = f.router->losses().console_lines;
  const std::string file = f.FileOf("attempt_0/3/stderr.log");
  f.router.reset();
  const std::string err = f.err.ReadToEnd();
  const std::string out = f.out.ReadToEnd();
  CHECK(std::count(file.begin(), file.end(), '\n') == kLines);
  // The console's reader may have been kept from running so long that it counted as stopped:
  // then what is missing has been counted. A worker may be kept from running within a line: then
  // that line stands in two.
  std::istringstream in(err + out);
  uint64_t whole = 0;
  uint64_t broken = 0;
  std::array<std::string, 4> beginnings;  // by rank, of lines that were shown unfinished
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("ddprun: ", 0) == 0) continue;
    const bool is_ours = line.rfind("[default", 0) == 0 && line.find("]:") == 9;
    const size_t rank = is_ours ? static_cast<size_t>(line[8] - '0') : 0;
    REQUIRE_MESSAGE((is_ours && rank < 4), line);
    const std::string text = std::exchange(beginnings[rank], "") + line.substr(11);
    const std::string end = std::string(" of ") + line[8];
    if (!text.ends_with(end)) {
      beginnings[rank] = text;
      continue;
    }
    const bool is_whole =
        text.rfind("step ", 0) == 0 && text.find(" of ") == text.size() - end.size();
    whole += is_whole ? 1 : 0;
    broken += is_whole ? 0 : 1;
  }
  CHECK(broken == 0);
  CHECK(whole + dropped == 4 * kLines);
}

TEST_CASE("log router: a console that nobody reads stops no worker and costs no line of the file") {
  testing::TempDir dir;
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd unread(ends[0]);
  const UniqueFd console(ends[1]);
  LogOptions options;
  options.log_dir = dir.File("logs");
  options.tee.everyone = kBoth;
  options.stdout_fd = console.get();
  options.stderr_fd = console.get();
  auto router = LogRouter::Create(options);
  REQUIRE(router.ok());
  (*router)->BeginRound(0);
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "0123456789 0123456789 0123456789 0123456789\n";
  {
    const WorkerStdio stdio = (*router)->OpenWorker(0, 0).value();
    WriteAll(stdio.stdout_fd.get(), text);  // 4.4 MB, far more than pipe and queue hold
    WriteAll(stdio.stderr_fd.get(), "the end\n");
    CHECK((*router)->StderrTail(0, 1, seconds(20)) == "the end\n");
  }
  (*router)->Say("still there");  // does not block either
  const std::string file = (*router)->run_folder() + "/attempt_0/0/stdout.log";
  CHECK_FALSE((*router)->Drain(milliseconds(500)));  // lower bound: nobody reads
  (*router)->BeginRound(1);
  CHECK((*router)->StderrTail(0, 1, seconds(20)) == "");
  CHECK((*router)->losses().console_lines > 50000);
  CHECK((*router)->losses().file_lines == 0);
  router->reset();
  CHECK(std::filesystem::file_size(file) == text.size());
}

TEST_CASE("log router: one line of megabytes comes in marked pieces and is whole in the file") {
  Fixture f;
  LogOptions options = f.Options();
  options.tee.everyone = kBoth;
  f.Start(options);
  const std::string line(5000000, 'x');
  {
    const WorkerStdio stdio = f.Open(0, 0);
    WriteAll(stdio.stdout_fd.get(), line);
    WriteAll(stdio.stdout_fd.get(), "\nend\n");
  }
  CHECK(f.router->Drain(seconds(20)));
  CHECK(f.FileOf("attempt_0/0/stdout.log") == line + "\nend\n");
  const uint64_t dropped = f.router->losses().console_lines;
  f.router.reset();
  const std::string out = f.out.ReadToEnd();
  CHECK(out == Contains("[line cut by ddprun at 64 KiB]\n[default0]:x"));
  CHECK(out == Contains("[default0]:end\n"));
  if (dropped == 0) CHECK(std::count(out.begin(), out.end(), 'x') == 5000000);
  std::istringstream in(out);
  for (std::string piece; std::getline(in, piece);) CHECK(piece.size() < 66000);
}

TEST_CASE("log router: on a terminal the worker's stderr is a terminal, and stays byte for byte") {
  auto console = OpenTerminalLike(-1);
  if (!console.ok()) return testing::SkipTest("no pseudo-terminals here");
  testing::TempDir dir;
  LogOptions options;
  options.temp_dir = dir.path().string();
  options.stderr_fd = console->write_end.get();
  auto router = LogRouter::Create(options);
  REQUIRE(router.ok());
  (*router)->BeginRound(0);
  WorkerStdio stdio = (*router)->OpenWorker(0, 0).value();
  CHECK(isatty(stdio.stderr_fd.get()));
  WriteAll(stdio.stderr_fd.get(), "10%\rdone\n");
  stdio = {};
  CHECK((*router)->StderrTail(0, 50, seconds(20)) == "10%\rdone\n");
  CHECK((*router)->Drain(seconds(20)));
  char buffer[100];
  const ssize_t n = read(console->read_end.get(), buffer, sizeof(buffer));
  REQUIRE(n > 0);
  CHECK(std::string(buffer, static_cast<size_t>(n)) == "10%\rdone\n");

  // Tee'd, it is none: the file and the prefix are for lines.
  router->reset();
  options.tee.everyone = kBoth;
  router = LogRouter::Create(options);
  REQUIRE(router.ok());
  (*router)->BeginRound(0);
  CHECK_FALSE(isatty((*router)->OpenWorker(0, 0)->stderr_fd.get()));
}

TEST_CASE("log router: a line of our own comes behind what the workers wrote before it") {
  Fixture f;
  f.Start(f.Options());
  WriteAll(f.Open(0, 0).stderr_fd.get(), "x\n");
  f.router->Say("ddprun: one line of ours");
  CHECK(f.router->Drain(seconds(20)));
  f.router.reset();
  CHECK(f.err.ReadToEnd() == "x\nddprun: one line of ours\n");
}

TEST_CASE("log router: with /dev/null there are no files, and the console gets its lines") {
  Fixture f;
  LogOptions options = f.Options();
  options.log_dir = "/dev/null";
  options.tee.everyone = kBoth;
  f.Start(options);
  {
    const WorkerStdio stdio = f.Open(0, 0);
    CHECK(stdio.error_file == "");
    WriteAll(stdio.stdout_fd.get(), "x\n");
  }
  CHECK(f.router->Drain(seconds(20)));
  f.router.reset();
  CHECK(f.out.ReadToEnd() == "[default0]:x\n");
  CHECK(std::filesystem::is_empty(f.dir.path()));
}

}  // namespace
}  // namespace ddprun::launcher
