// A line of the timers' FIFO, into which any process of the job may write.
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "launcher/agent/file_timers.h"
#include "tests/fuzz/promise.h"

namespace ddprun::launcher {

using fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::optional<TimerRequest> request = ParseTimerRequest(fuzz::TextOf(data, size));
  if (!request) return 0;
  Promise(request->pid > 1, "nobody's timer is that of init or of a group");
  Promise(request->signal <= 64, "a timer's signal is one");
  Promise(std::isfinite(request->expires), "a timer's end is a number");
  Promise(ShortScope(request->scope).size() <= 103, "a scope in a message is short");
  const nlohmann::json written = {{"pid", request->pid},
                                  {"scope_id", request->scope},
                                  {"expiration_time", request->expires},
                                  {"signal", request->signal}};
  const std::string line = written.dump();
  if (line.size() > kMaxTimerLine) return 0;
  Promise(ParseTimerRequest(line) == request, "a request is read as it was written", line);
  return 0;
}

}  // namespace ddprun::launcher
