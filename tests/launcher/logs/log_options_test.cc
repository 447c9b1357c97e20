#include <doctest/doctest.h>
#include <fcntl.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "launcher/logs/log_router.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

constexpr Streams kBoth{.out = true, .err = true};

TEST_CASE("log options: what the configuration and the environment ask for") {
  LaunchConfig config;
  config.log_dir = "d";
  config.run_id = "r";
  config.role = "w";
  config.tee.everyone = kBoth;
  const LogOptions options =
      MakeLogOptions(config, {.variables = {"DDPRUN_STDERR=inherit", "TMPDIR=/t",
                                            "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=[${rank}]"},
                              .machine = {}});
  CHECK(options.log_dir == "d");
  CHECK(options.run_id == "r");
  CHECK(options.role == "w");
  CHECK(options.tee.For(0) == kBoth);
  CHECK(options.inherit_stderr);
  CHECK(options.temp_dir == "/t");
  CHECK(options.memory_dir == "/t");
  CHECK(MakeLogOptions(config, {}).memory_dir == "/dev/shm");
  CHECK(options.prefix_template == "[${rank}]");
  CHECK_FALSE(options.hostname.empty());
  CHECK_FALSE(MakeLogOptions(config, {}).inherit_stderr);
}

TEST_CASE("log options: the prefix of the command line wins, an empty one is none") {
  const auto of = [](const std::string& option, const std::string& variable) {
    LaunchConfig config;
    config.log_line_prefix_template = option;
    const std::string name = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=";
    return MakeLogOptions(config, {.variables = {name + variable}, .machine = {}}).prefix_template;
  };
  CHECK(of("a", "b") == "a");
  CHECK(of("", "b") == "b");
  CHECK(of("", "") == LogOptions().prefix_template);
}

TEST_CASE("log options: who reaches the console and what is copied") {
  LaunchConfig config;
  config.console_ranks = {3};
  config.stdout_filters = {"out"};
  config.stderr_filters = {"err"};
  const LogOptions options = MakeLogOptions(config, {});
  CHECK(options.console_ranks == std::set<int>{3});
  CHECK(options.stdout_filters == std::vector<std::string>{"out"});
  CHECK(options.stderr_filters == std::vector<std::string>{"err"});
}

TEST_CASE("log options: a log directory that cannot be written to is one line that quotes it") {
  testing::TempDir dir;
  std::ofstream(dir.File("file")) << "x";
  LogOptions options;
  options.log_dir = dir.File("file");
  options.log_dir_source = "PET_LOG_DIR";
  const auto router = LogRouter::Create(options);
  REQUIRE_FALSE(router.ok());
  const std::string message(router.status().message());
  CAPTURE(message);
  CHECK(message.find("PET_LOG_DIR '" + dir.File("file") + "': ") == 0);
  CHECK(message == Contains("directory that can be written to"));
  CHECK(message != Contains("\n"));
}

// What a run of two rounds says on stderr.
std::string SaidBy(LogOptions options, const testing::TempDir& dir, std::string* folder) {
  const std::string console = dir.File("console");
  UniqueFd fd(open(console.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  options.stdout_fd = options.stderr_fd = fd.get();
  options.temp_dir = dir.path().string();
  auto router = LogRouter::Create(std::move(options));
  REQUIRE(router.ok());
  for (const int restart : {0, 1}) {
    (*router)->BeginRound(restart);
    for (const int local_rank : {0, 1}) {
      REQUIRE((*router)->OpenWorker(local_rank, local_rank).ok());
    }
  }
  *folder = (*router)->run_folder();
  router->reset();
  return testing::ReadFile(console);
}

TEST_CASE("log options: where files are that nobody chose a place for is said once") {
  testing::TempDir dir;
  std::string folder;
  LogOptions options;
  options.redirects.everyone = kBoth;
  const std::string said = SaidBy(options, dir, &folder);
  CHECK(folder.find(dir.path().string()) == 0);
  CHECK(said == "ddprun: log files are in " + folder +
                    "/attempt_<n>/<local_rank>/; --log-dir chooses the place\n");
}

TEST_CASE("log options: without files, or with a place of the user's choice, nothing is said") {
  testing::TempDir dir;
  std::string folder;
  CHECK(SaidBy(LogOptions(), dir, &folder) == "");
  LogOptions chosen;
  chosen.tee.everyone = kBoth;
  chosen.log_dir = dir.File("logs");
  CHECK(SaidBy(chosen, dir, &folder) == "");
  chosen.log_dir = "/dev/null";
  CHECK(SaidBy(chosen, dir, &folder) == "");
}

TEST_CASE("log options: error files alone are kept in memory, logs and the rest on disk") {
  const testing::TempDir disk, memory;
  const auto place_of = [](const LogOptions& options) {
    auto router = LogRouter::Create(options);
    REQUIRE(router.ok());
    (*router)->BeginRound(0);
    const auto stdio = (*router)->OpenWorker(0, 0);
    REQUIRE(stdio.ok());
    return stdio->error_file;
  };
  LogOptions options;
  options.temp_dir = disk.path().string();
  options.memory_dir = memory.path().string();
  CHECK(place_of(options).rfind(options.memory_dir + "/ddprun_none_", 0) == 0);
  options.memory_dir = memory.File("missing");
  CHECK(place_of(options).rfind(options.temp_dir + "/ddprun_none_", 0) == 0);
  options.memory_dir = memory.path().string();
  options.tee.by_local_rank[1] = kBoth;
  CHECK(place_of(options).rfind(options.temp_dir + "/ddprun_none_", 0) == 0);
}

TEST_CASE("log options: an end without the destructor leaves no empty folder either") {
  const testing::TempDir memory;
  LogOptions options;
  options.memory_dir = memory.path().string();
  auto router = LogRouter::Create(options);
  REQUIRE(router.ok());
  (*router)->BeginRound(0);
  REQUIRE((*router)->OpenWorker(0, 0).ok());
  CHECK_FALSE(std::filesystem::is_empty(memory.path()));

  (*router)->Finish(std::chrono::seconds(60));

  CHECK(std::filesystem::is_empty(memory.path()));
}

}  // namespace
}  // namespace ddprun::launcher
