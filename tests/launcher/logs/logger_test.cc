#include "launcher/logs/logger.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <spdlog/logger.h>
#include <unistd.h>

#include <chrono>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "launcher/logs/log_router.h"
#include "tests/launcher/logs/console_file.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

TEST_CASE("logger: a line has its level and time, and stands behind what a worker wrote before") {
  ConsoleFile console;
  const auto logger = MakeLogger(console.router(), LogLevel::kInfo);
  console.router().BeginRound(0);
  auto worker = console.router().OpenWorker(0, 0);
  REQUIRE(worker.ok());
  const std::string before = "the worker's\n";
  REQUIRE(write(worker->stderr_fd.get(), before.data(), before.size()) > 0);
  logger->info("workers started");
  const std::string text = console.Close();
  const std::regex expected(
      R"(the worker's\nddprun: info: [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3} workers started\n)");
  CHECK_MESSAGE(std::regex_match(text, expected), text);
}

TEST_CASE("logger: what is below the level is not there") {
  for (const LogLevel level : {LogLevel::kTrace, LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn,
                               LogLevel::kError, LogLevel::kOff}) {
    ConsoleFile console;
    const auto logger = MakeLogger(console.router(), level);
    logger->trace("t");
    logger->debug("d");
    logger->info("i");
    logger->warn("w");
    logger->error("e");
    const size_t lines = Lines(console.Close()).size();
    CHECK(lines == 5 - static_cast<size_t>(level));
  }
}

TEST_CASE("logger: a message stays one line of bounded length, harmless to a terminal") {
  ConsoleFile console;
  const auto logger = MakeLogger(console.router(), LogLevel::kInfo);
  logger->info("a\nddprun: error: not ours\x1b[2J {}", "x");
  logger->info(std::string(100'000, 'y'));
  const std::vector<std::string> lines = Lines(console.Close());
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == Contains("a\\nddprun: error: not ours\\x1b[2J x"));
  CHECK(lines[1].size() < 4200);
  CHECK(lines[1].substr(lines[1].size() - 4) == "y...");
}

TEST_CASE("logger: threads log at once, each line whole and each thread's in order") {
  ConsoleFile console;
  const auto logger = MakeLogger(console.router(), LogLevel::kInfo);
  constexpr int kThreads = 4;
  constexpr int kEach = 100;  // together less than what may wait
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&logger, thread] {
      for (int i = 0; i < kEach; ++i) logger->info("thread={} count={} end", thread, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<int> next(kThreads, 0);
  const std::regex format("ddprun: info: [0-9:.]{12} thread=([0-9]) count=([0-9]+) end");
  for (const std::string& line : Lines(console.Close())) {
    std::smatch match;
    REQUIRE_MESSAGE(std::regex_match(line, match, format), line);
    CHECK(std::stoi(match[2]) == next[std::stoul(match[1])]++);
  }
  for (const int count : next) CHECK(count == kEach);
}

TEST_CASE("logger: in a flood the user's lines come through, and what is missing is counted") {
  ConsoleFile console;
  LogRouter& router = console.router();
  const auto logger = MakeLogger(router, LogLevel::kInfo);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  constexpr size_t kRounds = 50;
  bool is_full = true;
  for (size_t i = 0; i < kRounds && is_full; ++i) {
    do {
      is_full = !router.Offer("offered");
    } while (!is_full && std::chrono::steady_clock::now() < deadline);
    // There was no room a moment ago: now and then the log thread is quick enough to make some.
    logger->info("flood");
    router.Say("for the user");
  }
  REQUIRE_MESSAGE(is_full, "the log thread kept up for 30 s");
  REQUIRE(router.Drain(std::chrono::seconds(30)));
  logger->info("the end of the gap");
  logger->info("behind the gap");
  size_t seen = 0;
  size_t missing = 0;
  size_t for_the_user = 0;
  const std::string mark = "ddprun: warning: ";
  const std::vector<std::string> lines = Lines(console.Close());
  for (const std::string& line : lines) {
    if (line.rfind(mark, 0) == 0) missing += std::stoul(line.substr(mark.size()));
    if (line.find(" flood") != std::string::npos) ++seen;
    if (line == "for the user") ++for_the_user;
  }
  CHECK(missing > 0);
  CHECK(lines.back() == Contains(" behind the gap"));
  CHECK(seen + missing == kRounds);
  CHECK(for_the_user == kRounds);
}

}  // namespace
}  // namespace ddprun::launcher
