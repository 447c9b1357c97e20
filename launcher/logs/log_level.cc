#include "launcher/logs/log_level.h"

#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

enum Speaker { kDdprun = 1, kPython = 2, kBoth = kDdprun | kPython };

struct NamedLevel {
  std::string_view name;
  LogLevel level;
  Speaker of;
};

// Nothing of ours is critical. NOTSET is "as the root logger", whose level is WARNING.
constexpr NamedLevel kLevels[] = {
    {"trace", LogLevel::kTrace, kDdprun},  {"debug", LogLevel::kDebug, kBoth},
    {"info", LogLevel::kInfo, kBoth},      {"warn", LogLevel::kWarn, kBoth},
    {"warning", LogLevel::kWarn, kPython}, {"error", LogLevel::kError, kBoth},
    {"critical", LogLevel::kOff, kPython}, {"fatal", LogLevel::kOff, kPython},
    {"off", LogLevel::kOff, kDdprun},      {"notset", LogLevel::kWarn, kPython},
};

std::optional<LogLevel> Find(Speaker speaker, const std::string& value) {
  const std::string name = absl::AsciiStrToLower(value);
  for (const NamedLevel& known : kLevels) {
    if (known.name == name && (known.of & speaker) != 0) return known.level;
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
    if (const auto level = Find(kDdprun, *value)) return {.level = *level};
    return Unknown("DDPRUN_LOG_LEVEL", *value, "trace, debug, info, warn, error or off");
  }
  if (const auto& value = variables.loglevel; value && !value->empty()) {
    if (const auto level = Find(kPython, *value)) return {.level = *level};
    if (const auto level = FromNumber(*value)) return {.level = *level};
    return Unknown("LOGLEVEL", *value,
                   "DEBUG, INFO, WARNING, ERROR, CRITICAL or a number as Python's logging has it");
  }
  return {};
}

}  // namespace ddprun::launcher
