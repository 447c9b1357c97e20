#include "launcher/agent/file_timers.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/contains.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

std::string Request(int pid, const std::string& scope, int64_t expires, int signal) {
  return absl::StrCat(R"({"version": 1, "pid": )", pid, R"(, "scope_id": ")", scope,
                      R"(", "expiration_time": )", expires, R"(, "signal": )", signal, "}\n");
}

// The timers, what they say, and the scopes that expired.
struct Fixture {
  Fixture() {
    auto fifo = MakeTimerFile(dir.File("fifo"));
    REQUIRE_MESSAGE(fifo.ok(), fifo.status().message());
    timers = std::make_unique<FileTimers>(
        io, *std::move(fifo), [this](const std::string& line) { said.push_back(line); },
        [this](const TimerRequest& timer, bool) { expired.push_back(timer.scope); });
  }
  void Write(const std::string& text) {
    std::ofstream(dir.File("fifo")) << text;
    io.poll();
  }
  bool RunUntilExpired(const std::string& scope) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::find(expired.begin(), expired.end(), scope) == expired.end()) {
      if (io.run_one_until(deadline) == 0) return false;
    }
    return true;
  }

  testing::TempDir dir;
  boost::asio::io_context io;
  std::vector<std::string> said;
  std::vector<std::string> expired;
  std::unique_ptr<FileTimers> timers;
};

constexpr int64_t kFarFuture = 32503680000;

TEST_CASE("file timers: the first variable asks for them, the second only names the path") {
  Environment environment;
  environment.variables = {"TORCHELASTIC_TIMER_FILE=/some/path"};
  CHECK_FALSE(TimerFileOf(environment));
  environment.variables.push_back("TORCHELASTIC_ENABLE_FILE_TIMER=1");
  CHECK(TimerFileOf(environment) == "/some/path");
  // Inherited from the agent of the job in which this one runs.
  environment.variables.push_back("DDPRUN_JOB_MARK=outer");
  environment.variables.push_back("TMPDIR=/elsewhere");
  const std::string own = TimerFileOf(environment).value_or("");
  CHECK_MESSAGE(own.find("/elsewhere/watchdog_timer_") == 0, own);
}

TEST_CASE("file timers: the FIFO takes the place of an earlier one, and of no other file") {
  Fixture fixture;
  const std::string path = fixture.dir.File("fifo");
  CHECK(MakeTimerFile(path).ok());
  CHECK(RemoveTimerFile(path));
  CHECK_FALSE(std::filesystem::exists(path));
  std::ofstream(path) << "mine";
  CHECK_FALSE(MakeTimerFile(path).ok());
  CHECK_FALSE(RemoveTimerFile(path));
  CHECK(std::filesystem::exists(path));
}

TEST_CASE("file timers: a line that is too long is told, and the next one read") {
  Fixture fixture;
  fixture.Write(std::string(3 * kMaxTimerLine, 'x') + "\n" + Request(getpid(), "next", 1, 0));
  CHECK(fixture.RunUntilExpired("next"));
  fixture.Write(std::string(kMaxTimerLine, ' ') + "\n");
  fixture.Write(Request(getpid(), "last", 1, 0));
  CHECK(fixture.RunUntilExpired("last"));
  REQUIRE(fixture.said.size() == 2);
  CHECK(fixture.said[0] == "warning: a line in the timers' file is too long: ignored");
  CHECK(fixture.said[1].find("warning: no timer request, ignored: ") == 0);
}

TEST_CASE("file timers: a release that has come counts, wherever it stands among what has come") {
  Fixture fixture;
  const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  fixture.Write(Request(getpid(), "released", now + 2, 0));
  // What has come when the time is over: the executor was late for both.
  std::string burst;
  for (int i = 0; i < 20; ++i) burst += Request(getpid(), absl::StrCat("s", i), kFarFuture, 0);
  std::ofstream(fixture.dir.File("fifo")) << burst + Request(getpid(), "released", -1, 0);
  while (std::chrono::system_clock::now().time_since_epoch() < std::chrono::seconds(now + 2)) {
    std::this_thread::yield();
  }
  fixture.io.poll();
  fixture.Write(Request(getpid(), "last", 1, 0));
  CHECK(fixture.RunUntilExpired("last"));
  CHECK(fixture.expired == std::vector<std::string>{"last"});
}

TEST_CASE("file timers: those of a worker that is gone never expire, and make room") {
  Fixture fixture;
  constexpr int kWorker = 999999998;  // above any pid the kernel gives
  fixture.timers->WorkerRuns(kWorker);
  std::ofstream fifo(fixture.dir.File("fifo"));
  for (int i = 0; i < 10000; ++i) {
    fifo << Request(kWorker, absl::StrCat("s", i), kFarFuture, 9);
    if (i % 100 != 99) continue;  // the pipe holds 64 KiB
    fifo.flush();
    fixture.io.poll();
  }
  CHECK(fixture.said.empty());
  fixture.Write(Request(getpid(), "refused", 1, 0));
  REQUIRE(fixture.said.size() == 1);
  CHECK(fixture.said[0] == "warning: more than 10000 timers: ignored");
  CHECK(fixture.timers->WorkerIsGone(kWorker).empty());
  fixture.Write(Request(getpid(), "taken", 1, 0));
  CHECK(fixture.RunUntilExpired("taken"));
  CHECK(fixture.expired.size() == 1);
}

TEST_CASE("file timers: a long scope is cut in what is said of it") {
  Fixture fixture;
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  fixture.timers->WorkerRuns(child);
  const std::string scope(3000, 'x');
  fixture.Write(Request(child, scope, 1, SIGKILL));
  CHECK(fixture.RunUntilExpired(scope));
  REQUIRE(waitpid(child, nullptr, 0) == child);
  REQUIRE(fixture.said.size() == 1);
  CHECK(fixture.said[0] == Contains("'" + std::string(100, 'x') + "...'"));
  CHECK(fixture.timers->WorkerIsGone(child).size() < 150);
}

constexpr char kLine[] =
    R"({"version": 1, "pid": 77, "scope_id": "a.py#3", "expiration_time": 1.5, "signal": 9})";

TEST_CASE("timer request: what PyTorch's client writes is read") {
  CHECK(ParseTimerRequest(kLine) == TimerRequest{77, "a.py#3", 1.5, 9});
  CHECK(ParseTimerRequest(
            R"({"version": 1, "pid": 77, "scope_id": "", "expiration_time": -1, "signal": 0})") ==
        TimerRequest{77, "", -1, 0});
}

TEST_CASE("timer request: anything else is none") {
  for (const std::string& line : {
           std::string(),
           std::string("x"),
           std::string("[]"),
           std::string("{}"),
           std::string(kLine).substr(0, 50),
           std::string("\xff\xfe\0", 3),
           std::string(100, '[') + std::string(100, ']'),
           std::string(kLine) + std::string(5000, ' '),
           std::string(R"({"pid": "77", "scope_id": "", "expiration_time": 1, "signal": 9})"),
           std::string(R"({"pid": 1.5, "scope_id": "", "expiration_time": 1, "signal": 9})"),
           std::string(R"({"pid": 77, "scope_id": 3, "expiration_time": 1, "signal": 9})"),
           std::string(R"({"pid": 77, "scope_id": "", "expiration_time": null, "signal": 9})"),
           std::string(R"({"pid": 77, "scope_id": "", "expiration_time": NaN, "signal": 9})"),
           std::string(R"({"pid": 77, "scope_id": [""], "expiration_time": 1, "signal": 9})"),
           // Those that kill() would read as a group, or everybody.
           std::string(R"({"pid": 0, "scope_id": "", "expiration_time": 1, "signal": 9})"),
           std::string(R"({"pid": -1, "scope_id": "", "expiration_time": 1, "signal": 9})"),
           std::string(R"({"pid": 1, "scope_id": "", "expiration_time": 1, "signal": 9})"),
           std::string(R"({"pid": 4294967297, "scope_id": "", "expiration_time": 1, "signal": 9})"),
           std::string(R"({"pid": 77, "scope_id": "", "expiration_time": 1, "signal": 65})"),
       }) {
    CAPTURE(line);
    CHECK_FALSE(ParseTimerRequest(line));
  }
}

TEST_CASE("timer request: a message has the beginning of a long scope, in whole characters") {
  CHECK(ShortScope("a.py#3") == "a.py#3");
  CHECK(ShortScope(std::string(100, 'x')) == std::string(100, 'x'));
  CHECK(ShortScope(std::string(3500, 'x')) == std::string(100, 'x') + "...");
  CHECK(ShortScope(std::string(98, 'x') + "\xe2\x82\xac" + "y") == std::string(98, 'x') + "...");
}

TEST_CASE("timer request: random bytes in a good line do no harm") {
  std::mt19937 random(11);
  for (int i = 0; i < 20000; ++i) {
    std::string line = kLine;
    for (int k = 0; k < 2; ++k) line[random() % line.size()] = static_cast<char>(random());
    const auto timer = ParseTimerRequest(line);
    if (timer) CHECK(timer->pid > 1);
  }
}

}  // namespace
}  // namespace ddprun::launcher
