// Which ranks' output reaches the console, and which lines are copied.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "launcher/logs/log_router.h"
#include "rendezvous/base/durable_file.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/launcher/logs/console_file.h"
#include "tests/launcher/logs/file_size_limit.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using std::chrono::seconds;

constexpr Streams kBoth = {.out = true, .err = true};

void WriteAll(const UniqueFd& fd, std::string_view bytes) {
  REQUIRE(ddprun::WriteAll(fd.get(), {bytes.data(), bytes.size()}, "a worker's stream").ok());
}

// Runs one round of workers that each write `out` and `err`, {} in them being the local rank.
void RunWorkers(LogRouter& router, int workers, const std::string& out, const std::string& err) {
  const auto filled = [](std::string text, int rank) {
    for (size_t at = text.find("{}"); at != std::string::npos; at = text.find("{}")) {
      text.replace(at, 2, std::to_string(rank));
    }
    return text;
  };
  router.BeginRound(0);
  for (int rank = 0; rank < workers; ++rank) {
    auto stdio = router.OpenWorker(rank, rank);
    INFO("status: ", stdio.status().ToString());
    REQUIRE(stdio.ok());
    if (stdio->stdout_fd.is_open()) WriteAll(stdio->stdout_fd, filled(out, rank));
    if (stdio->stderr_fd.is_open()) WriteAll(stdio->stderr_fd, filled(err, rank));
  }
  CHECK(router.Drain(seconds(20)));
}

bool IsNull(const UniqueFd& fd) {
  struct stat status = {};
  return fstat(fd.get(), &status) == 0 && status.st_rdev == makedev(1, 3);
}

std::string Sorted(const std::string& text) {
  std::vector<std::string> lines = Lines(text);
  std::sort(lines.begin(), lines.end());
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

TEST_CASE("console choice: of a rank that is not shown nothing reaches the console") {
  LogOptions options;
  options.console_ranks = {1};
  ConsoleFile console(options);
  LogRouter& router = console.router();
  router.BeginRound(0);
  {
    const WorkerStdio hidden = router.OpenWorker(0, 0).value();
    const WorkerStdio shown = router.OpenWorker(1, 1).value();
    CHECK(IsNull(hidden.stdout_fd));
    CHECK_FALSE(shown.stdout_fd.is_open());
    WriteAll(hidden.stderr_fd, "hidden\n");
    WriteAll(shown.stderr_fd, "shown\n");
    // A report of its failure would need it all the same.
    CHECK(router.StderrTail(0, 10, seconds(20)) == "hidden\n");
  }
  CHECK(router.Drain(seconds(20)));
  CHECK(console.Close() == "shown\n");
}

TEST_CASE("console choice: DDPRUN_STDERR=inherit is for ranks that are shown") {
  LogOptions options;
  options.console_ranks = {1};
  options.inherit_stderr = true;
  ConsoleFile console(options);
  console.router().BeginRound(0);
  CHECK(console.router().OpenWorker(0, 0)->stderr_fd.is_open());
  CHECK_FALSE(console.router().OpenWorker(1, 1)->stderr_fd.is_open());
}

TEST_CASE("console choice: files have the tee'd and redirected output of every rank") {
  LogOptions options;
  options.console_ranks = {1, 12};
  options.redirects.everyone = {.out = true};
  options.tee.everyone = {.err = true};
  ConsoleFile console(options);
  RunWorkers(console.router(), 3, "out {}\n", "err {}\n");
  for (const std::string rank : {"0", "1", "2"}) {
    CHECK(console.FileOf("attempt_0/" + rank + "/stdout.log") == "out " + rank + "\n");
    CHECK(console.FileOf("attempt_0/" + rank + "/stderr.log") == "err " + rank + "\n");
  }
  CHECK(console.Close() == Contains("[default1]:err 1\n"));
  CHECK(Sorted(console.Close()) != Contains("[default0]"));
}

TEST_CASE("console choice: with /dev/null a redirected stream stays on the console") {
  LogOptions options;
  options.log_dir = "/dev/null";
  options.redirects.everyone = kBoth;
  ConsoleFile console(options);
  console.router().BeginRound(0);
  {
    const WorkerStdio stdio = console.router().OpenWorker(0, 0).value();
    CHECK_FALSE(stdio.stdout_fd.is_open());
    WriteAll(stdio.stderr_fd, "err\n");
  }
  CHECK(console.router().Drain(seconds(20)));
  CHECK(console.Close() == "err\n");
}

LogOptions Copying() {
  LogOptions options;
  options.tee.everyone = kBoth;
  options.stdout_filters = {"apple", "a,b"};
  options.stderr_filters = {"oops"};
  return options;
}

TEST_CASE(
    "console choice: lines with one of the texts are copied with their prefix, of all ranks") {
  ConsoleFile console(Copying());
  RunWorkers(console.router(), 2, "an apple {}\npear {}\n  a,b {}", "pear\noops {}\r\napple\n");
  CHECK(Sorted(console.FileOf("attempt_0/filtered_stdout.log")) ==
        "[default0]:  a,b 0\n[default0]:an apple 0\n[default1]:  a,b 1\n[default1]:an apple 1\n");
  CHECK(Sorted(console.FileOf("attempt_0/filtered_stderr.log")) ==
        "[default0]:oops 0\n[default1]:oops 1\n");
}

TEST_CASE("console choice: only lines that reach the console are copied") {
  LogOptions options = Copying();
  options.console_ranks = {1};
  options.tee.everyone = {.out = true};
  options.redirects.everyone = {.err = true};
  ConsoleFile console(options);
  RunWorkers(console.router(), 2, "apple {}\n", "oops {}\n");
  CHECK(console.FileOf("attempt_0/filtered_stdout.log") == "[default1]:apple 1\n");
  CHECK_FALSE(
      std::filesystem::exists(console.router().run_folder() + "/attempt_0/filtered_stderr.log"));
}

TEST_CASE("console choice: each attempt has its own copies") {
  ConsoleFile console(Copying());
  RunWorkers(console.router(), 1, "apple first\n", "");
  RunWorkers(console.router(), 1, "apple second\n", "");
  CHECK(console.FileOf("attempt_0/filtered_stdout.log") == "[default0]:apple first\n");
  CHECK(console.FileOf("attempt_0.1/filtered_stdout.log") == "[default0]:apple second\n");
}

TEST_CASE("console choice: with /dev/null nothing is copied and nothing fails") {
  LogOptions options = Copying();
  options.log_dir = "/dev/null";
  ConsoleFile console(options);
  RunWorkers(console.router(), 1, "apple\n", "");
  CHECK(console.Close() == "[default0]:apple\n");
}

TEST_CASE("console choice: copies are complete although nobody reads the console") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd unread(ends[0]);
  const UniqueFd console(ends[1]);
  const testing::TempDir dir;
  LogOptions options = Copying();
  options.log_dir = dir.File("logs");
  options.stdout_fd = options.stderr_fd = console.get();
  auto router = LogRouter::Create(options);
  REQUIRE(router.ok());
  (*router)->BeginRound(0);
  constexpr int kLines = 60000;
  std::string text;
  for (int i = 0; i < kLines; ++i) text += i % 2 == 0 ? "an apple a day and more\n" : "a pear\n";
  WriteAll((*router)->OpenWorker(0, 0)->stdout_fd, text);  // 1.9 MB with prefixes
  const std::string file = (*router)->run_folder() + "/attempt_0/filtered_stdout.log";
  CHECK_FALSE((*router)->Drain(std::chrono::milliseconds(500)));  // lower bound: nobody reads
  (*router)->EndRound();
  CHECK((*router)->StderrTail(0, 1, seconds(20)) == "");  // behind the end of the round
  CHECK((*router)->losses().console_lines > 0);
  CHECK((*router)->losses().file_lines == 0);
  CHECK((*router)->TakeLossWarning() == "");  // the console says it itself when it is read again
  const std::string line = "[default0]:an apple a day and more\n";
  CHECK(std::filesystem::file_size(file) == kLines / 2 * line.size());
}

TEST_CASE("console choice: what a full disk cannot take is counted, the copies' lines as well") {
  ConsoleFile console(Copying());
  LogRouter& router = console.router();
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "apple\n";
  std::string warning;
  {
    const FileSizeLimit limit(3000);
    RunWorkers(router, 1, text, "");
    warning = router.TakeLossWarning();
  }
  // 500 lines of 6 bytes fit into the log; of 17 bytes with the prefix 176 into the copies and,
  // torn in the last one, into the console, which then lacks the warning.
  const LogLosses losses = router.losses();
  CHECK(losses.file_lines == 500 + 824);
  CHECK(losses.refused_lines == 824 + 1);
  CHECK(warning == "warning: 1324 lines are missing from log files in " + router.run_folder() +
                       ": File too large; 825 lines are missing from the console: File too large");
  CHECK(router.TakeLossWarning() == "");
  const std::string copies = console.FileOf("attempt_0/filtered_stdout.log");
  CHECK(copies.size() == 176 * 17);
  // Both go on where there is room again, the console on a new line.
  RunWorkers(router, 1, "apple again\n", "");
  CHECK(console.FileOf("attempt_0.1/filtered_stdout.log") == "[default0]:apple again\n");
  CHECK(router.losses().file_lines == 500 + 824);  // of all rounds
  const std::string all = console.Close();
  CHECK(all.size() == 3000 + std::string("\n[default0]:apple again\n").size());
  CHECK(all.substr(3000) == "\n[default0]:apple again\n");
}

TEST_CASE(
    "console choice: a console that was closed is told of once, where stderr can be written") {
  for (const bool is_stderr_closed : {false, true}) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    UniqueFd reader(ends[0]);
    const UniqueFd console(ends[1]);
    const testing::TempDir dir;
    const UniqueFd err(open(dir.File("err").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    LogOptions options = Copying();
    options.log_dir = dir.File("logs");
    options.stdout_fd = console.get();
    options.stderr_fd = is_stderr_closed ? console.get() : err.get();
    auto router = LogRouter::Create(options);
    REQUIRE(router.ok());
    reader.Reset();
    for (int round = 0; round < 2; ++round) RunWorkers(**router, 1, "one\ntwo\n", "");
    CHECK((*router)->TakeLossWarning() == "");
    CHECK((*router)->losses().console_lines >= 4);
    router->reset();
    CHECK(testing::ReadFile(dir.File("err")) ==
          (is_stderr_closed ? ""
                            : "ddprun: warning: from here on lines are missing from the console: "
                              "Broken pipe\n"));
  }
}

TEST_CASE("console choice: one lost line is one, not lines") {
  LogLosses one;
  one.file_lines = 1;
  one.refused_lines = 1;
  one.file_error = one.console_error = ENOSPC;
  CHECK(LossWarning({}, one, "/logs") ==
        "warning: 1 line is missing from log files in /logs: No space left on device; 1 line is "
        "missing from the console: No space left on device");
}

TEST_CASE("console choice: binary output stays whole lines with a prefix, in bounded memory") {
  LogOptions options = Copying();
  options.stdout_filters = {std::string("\0\xfe", 2)};
  ConsoleFile console(options);
  std::string garbage;
  uint32_t state = 1;
  for (int i = 0; i < 3000000; ++i) {
    state = state * 1664525 + 1013904223;
    garbage.push_back(static_cast<char>(state >> 24));
  }
  LogRouter& router = console.router();
  router.BeginRound(0);
  {
    std::vector<std::thread> workers;
    for (int rank = 0; rank < 2; ++rank) {
      workers.emplace_back([stdio = router.OpenWorker(rank, rank).value(), &garbage] {
        WriteAll(stdio.stdout_fd, garbage);
      });
    }
    for (std::thread& worker : workers) worker.join();
  }
  CHECK(router.Drain(seconds(30)));
  CHECK(console.FileOf("attempt_0/0/stdout.log") == garbage);
  CHECK(console.FileOf("attempt_0/1/stdout.log") == garbage);
  const std::string copies = console.FileOf("attempt_0/filtered_stdout.log");
  CHECK_FALSE(copies.empty());
  size_t without_prefix = 0;
  size_t without_text = 0;
  for (const std::string& line : Lines(copies)) {
    without_prefix += line.rfind("[default", 0) == 0 ? 0 : 1;
    without_text += line.find(std::string("\0\xfe", 2)) == std::string::npos ? 1 : 0;
  }
  CHECK(without_prefix == 0);
  CHECK(without_text == 0);
  for (const std::string& line : Lines(console.Close())) {
    without_prefix += line.rfind("[default", 0) == 0 ? 0 : 1;
  }
  CHECK(without_prefix == 0);
}

}  // namespace
}  // namespace ddprun::launcher
