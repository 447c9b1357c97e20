#include "launcher/agent/timer_request.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>

namespace ddprun::launcher {

std::optional<TimerRequest> ParseTimerRequest(std::string_view line) {
  using Json = nlohmann::json;
  if (line.size() > kMaxTimerLine) return std::nullopt;
  // No request has a member with members of its own.
  const auto guard = [](int depth, Json::parse_event_t, Json&) { return depth <= 1; };
  const Json json = Json::parse(line, guard, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const auto pid = json.find("pid");
  const auto scope = json.find("scope_id");
  const auto expires = json.find("expiration_time");
  const auto signal = json.find("signal");
  const auto end = json.end();
  if (pid == end || scope == end || expires == end || signal == end) return std::nullopt;
  if (!pid->is_number_integer() || !scope->is_string() || !expires->is_number() ||
      !signal->is_number_integer()) {
    return std::nullopt;
  }
  const auto pid_value = pid->get<int64_t>();
  const auto signal_value = signal->get<int64_t>();
  if (pid_value <= 1 || pid_value > std::numeric_limits<int>::max()) return std::nullopt;
  if (signal_value > 64 || signal_value < -64) return std::nullopt;
  return TimerRequest{.pid = static_cast<int>(pid_value),
                      .scope = scope->get<std::string>(),
                      .expires = expires->get<double>(),
                      .signal = static_cast<int>(signal_value)};
}

std::string ShortScope(const std::string& scope) {
  constexpr size_t kMaxBytes = 100;
  if (scope.size() <= kMaxBytes) return scope;
  size_t end = kMaxBytes;
  while (end > 0 && (static_cast<unsigned char>(scope[end]) & 0xc0) == 0x80) --end;
  return scope.substr(0, end) + "...";
}

}  // namespace ddprun::launcher
