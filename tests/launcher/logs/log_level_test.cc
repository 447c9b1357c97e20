#include "launcher/logs/log_level.h"

#include <doctest/doctest.h>

namespace ddprun::launcher {
namespace {

LogLevelChoice Ours(const std::string& value) {
  return ChooseLogLevel({.ddprun_log_level = value});
}
LogLevelChoice Torchs(const std::string& value) { return ChooseLogLevel({.loglevel = value}); }

TEST_CASE("log level: nothing set, or set to nothing, is warn") {
  CHECK(ChooseLogLevel({}).level == LogLevel::kWarn);
  CHECK(ChooseLogLevel({.ddprun_log_level = "", .loglevel = ""}).level == LogLevel::kWarn);
  CHECK(ChooseLogLevel({.ddprun_log_level = "", .loglevel = ""}).warning.empty());
}

TEST_CASE("log level: each name of DDPRUN_LOG_LEVEL is taken, in any case") {
  CHECK(Ours("trace").level == LogLevel::kTrace);
  CHECK(Ours("debug").level == LogLevel::kDebug);
  CHECK(Ours("INFO").level == LogLevel::kInfo);
  CHECK(Ours("Warn").level == LogLevel::kWarn);
  CHECK(Ours("error").level == LogLevel::kError);
  CHECK(Ours("off").level == LogLevel::kOff);
  CHECK(Ours("off").warning.empty());
}

TEST_CASE("log level: LOGLEVEL is a level of Python's, by name or by number") {
  CHECK(Torchs("DEBUG").level == LogLevel::kDebug);
  CHECK(Torchs("INFO").level == LogLevel::kInfo);
  CHECK(Torchs("WARNING").level == LogLevel::kWarn);
  CHECK(Torchs("WARN").level == LogLevel::kWarn);
  CHECK(Torchs("ERROR").level == LogLevel::kError);
  CHECK(Torchs("CRITICAL").level == LogLevel::kOff);
  CHECK(Torchs("FATAL").level == LogLevel::kOff);
  CHECK(Torchs("NOTSET").level == LogLevel::kWarn);
  CHECK(Torchs("0").level == LogLevel::kWarn);
  CHECK(Torchs("5").level == LogLevel::kTrace);
  CHECK(Torchs("10").level == LogLevel::kDebug);
  CHECK(Torchs("11").level == LogLevel::kInfo);
  CHECK(Torchs("20").level == LogLevel::kInfo);
  CHECK(Torchs("30").level == LogLevel::kWarn);
  CHECK(Torchs("40").level == LogLevel::kError);
  CHECK(Torchs("50").level == LogLevel::kOff);
  CHECK(Torchs("50").warning.empty());
}

TEST_CASE("log level: DDPRUN_LOG_LEVEL wins, and what LOGLEVEL holds is then no matter") {
  const LogLevelChoice choice =
      ChooseLogLevel({.ddprun_log_level = "info", .loglevel = "no level of Python's"});
  CHECK(choice.level == LogLevel::kInfo);
  CHECK(choice.warning.empty());
}

TEST_CASE("log level: a value that names no level is quoted, and costs nothing else") {
  const LogLevelChoice ours = Ours("lo\nud");
  CHECK(ours.level == LogLevel::kWarn);
  CHECK(ours.warning ==
        "DDPRUN_LOG_LEVEL 'lo\\nud' is ignored: expected trace, debug, info, warn, error or off");
  for (const char* value : {"verbose", "-1", "1e3", "99999999999999999999", " 10x"}) {
    const LogLevelChoice torchs = Torchs(value);
    CHECK(torchs.level == LogLevel::kWarn);
    CHECK_MESSAGE(torchs.warning.find("LOGLEVEL '" + std::string(value) + "' is ignored: ") == 0,
                  torchs.warning);
  }
}

}  // namespace
}  // namespace ddprun::launcher
