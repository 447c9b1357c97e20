#include <doctest/doctest.h>

#include <fstream>
#include <string>

#include "launcher/logs/log_router.h"
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
  CHECK(options.prefix_template == "[${rank}]");
  CHECK_FALSE(MakeLogOptions(config, {}).inherit_stderr);
}

TEST_CASE("log options: a log directory that cannot be written to is one line that quotes it") {
  testing::TempDir dir;
  std::ofstream(dir.File("file")) << "x";
  LogOptions options;
  options.log_dir = dir.File("file");
  const auto router = LogRouter::Create(options);
  REQUIRE_FALSE(router.ok());
  const std::string message(router.status().message());
  CAPTURE(message);
  CHECK(message.find("'" + dir.File("file") + "'") != std::string::npos);
  CHECK(message.find("directory that can be written to") != std::string::npos);
  CHECK(message.find('\n') == std::string::npos);
}

}  // namespace
}  // namespace ddprun::launcher
