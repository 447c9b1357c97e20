#include "launcher/agent/worker_end.h"

#include <chrono>
#include <cstddef>
#include <cstdio>

namespace ddprun::launcher {

std::string UtcText(int64_t unix_time_ms, char separator) {
  if (unix_time_ms <= 0) return "";
  using std::chrono::floor;
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

std::string RangesText(const std::vector<int>& ranks) {
  std::string out;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (!out.empty()) out += ", ";
    out += std::to_string(ranks[i]);
    if (end - i > 1) out += "-" + std::to_string(ranks[end - 1]);
    i = end;
  }
  return out;
}

std::string RanksText(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + RangesText(ranks);
}

}  // namespace ddprun::launcher
