// One line of PyTorch's file timers: {"version", "pid", "scope_id", "expiration_time", "signal"}.
#ifndef DDPRUN_LAUNCHER_AGENT_TIMER_REQUEST_H_
#define DDPRUN_LAUNCHER_AGENT_TIMER_REQUEST_H_

#include <optional>
#include <string>
#include <string_view>

namespace ddprun::launcher {

struct TimerRequest {
  int pid = 0;
  std::string scope;
  double expires = 0;  // Unix time in seconds; negative: the timer is released
  int signal = 0;      // 0 or less: nobody is killed
  friend bool operator==(const TimerRequest&, const TimerRequest&) = default;
};

// What a client may write at once (PIPE_BUF), and so the longest line that means something.
inline constexpr size_t kMaxTimerLine = 4096;

// Nothing for a line that is no request.
std::optional<TimerRequest> ParseTimerRequest(std::string_view line);

// The scope as it stands in a message: of a long one the beginning, whole characters, and "...".
std::string ShortScope(const std::string& scope);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_TIMER_REQUEST_H_
