#include "launcher/agent/worker_end.h"

#include <chrono>
#include <cstddef>

#include "absl/strings/str_format.h"

namespace ddprun::launcher {

std::string UtcText(int64_t unix_time_ms, char separator) {
  if (unix_time_ms <= 0) return "";
  using std::chrono::floor;
  const std::chrono::sys_time<std::chrono::milliseconds> time{
      std::chrono::milliseconds(unix_time_ms)};
  const auto day = floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return absl::StrFormat("%04d-%02d-%02d%c%02d:%02d:%02d.%03dZ", static_cast<int>(date.year()),
                         static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                         separator, clock.hours().count(), clock.minutes().count(),
                         clock.seconds().count(), clock.subseconds().count());
}

std::string UtcTextOfSecond(int64_t unix_time_s, char separator) {
  std::string text = UtcText(unix_time_s * 1000, separator);
  const size_t point = text.find('.');
  if (point != std::string::npos) text.replace(point, std::string::npos, "Z");
  return text;
}

std::string RanksText(const std::vector<int>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (i > 0) out += ", ";
    out += std::to_string(ranks[i]);
    if (end - i > 1) out += "-" + std::to_string(ranks[end - 1]);
    i = end;
  }
  return out;
}

}  // namespace ddprun::launcher
