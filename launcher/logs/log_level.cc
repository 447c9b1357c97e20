#include "launcher/logs/log_level.h"

#include <array>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

using NamedLevel = std::pair<std::string_view, LogLevel>;

constexpr std::array<NamedLevel, 6> kOurs = {{{"trace", LogLevel::kTrace},
                                              {"debug", LogLevel::kDebug},
                                              {"info", LogLevel::kInfo},
                                              {"warn", LogLevel::kWarn},
                                              {"error", LogLevel::kError},
                                              {"off", LogLevel::kOff}}};
// Nothing of ours is critical. NOTSET is "as the root logger", whose level is WARNING.
constexpr std::array<NamedLevel, 8> kPythons = {{{"debug", LogLevel::kDebug},
                                                 {"info", LogLevel::kInfo},
                                                 {"warning", LogLevel::kWarn},
                                                 {"warn", LogLevel::kWarn},
                                                 {"error", LogLevel::kError},
                                                 {"critical", LogLevel::kOff},
                                                 {"fatal", LogLevel::kOff},
                                                 {"notset", LogLevel::kWarn}}};

template <size_t N>
std::optional<LogLevel> Find(const std::array<NamedLevel, N>& levels, const std::string& value) {
  const std::string name = absl::AsciiStrToLower(value);
  for (const auto& [known, level] : levels) {
    if (known == name) return level;
  }
  return std::nullopt;
}

// What shows when only messages of `number` and more do: Python's DEBUG is 10, CRITICAL 50.
std::optional<LogLevel> FromNumber(const std::string& value) {
  int number = 0;
  if (!absl::SimpleAtoi(value, &number) || number < 0) return std::nullopt;
  if (number == 0) return LogLevel::kWarn;  // NOTSET
  if (number < 10) return LogLevel::kTrace;
  if (number == 10) return LogLevel::kDebug;
  if (number <= 20) return LogLevel::kInfo;
  if (number <= 30) return LogLevel::kWarn;
  return number <= 40 ? LogLevel::kError : LogLevel::kOff;
}

LogLevelChoice Unknown(const char* variable, const std::string& value, const char* accepted) {
  return {.warning =
              absl::StrCat(variable, " ", Quoted(value), " is ignored: expected ", accepted)};
}

}  // namespace

LogLevelChoice ChooseLogLevel(const LogLevelVariables& variables) {
  if (const auto& value = variables.ddprun_log_level; value && !value->empty()) {
    if (const auto level = Find(kOurs, *value)) return {.level = *level};
    return Unknown("DDPRUN_LOG_LEVEL", *value, "trace, debug, info, warn, error or off");
  }
  if (const auto& value = variables.loglevel; value && !value->empty()) {
    if (const auto level = Find(kPythons, *value)) return {.level = *level};
    if (const auto level = FromNumber(*value)) return {.level = *level};
    return Unknown("LOGLEVEL", *value,
                   "DEBUG, INFO, WARNING, ERROR, CRITICAL or a number as Python's logging has it");
  }
  return {};
}

}  // namespace ddprun::launcher
