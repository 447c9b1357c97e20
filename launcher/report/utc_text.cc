#include "launcher/report/utc_text.h"

#include <chrono>
#include <cstdio>

namespace ddprun::launcher {

std::string UtcText(int64_t unix_time_ms, char separator) {
  using std::chrono::floor;
  if (unix_time_ms <= 0) return "";
  const std::chrono::sys_time<std::chrono::milliseconds> time{
      std::chrono::milliseconds(unix_time_ms)};
  const auto day = floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  char text[64];
  std::snprintf(
      text, sizeof(text), "%04d-%02u-%02u%c%02d:%02d:%02d.%03dZ", static_cast<int>(date.year()),
      static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), separator,
      static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
      static_cast<int>(clock.seconds().count()), static_cast<int>(clock.subseconds().count()));
  return text;
}

}  // namespace ddprun::launcher
