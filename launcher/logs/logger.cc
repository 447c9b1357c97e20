#include "launcher/logs/logger.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/cli/text.h"
#include "launcher/logs/log_router.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxLineBytes = 4096;

std::unique_ptr<spdlog::formatter> LineFormat() {
  return std::make_unique<spdlog::pattern_formatter>("ddprun: %l: %H:%M:%S.%e %v",
                                                     spdlog::pattern_time_type::local, "");
}

// The mutex is for the formatter, which keeps the broken-down time, and for what is missing.
class RouterSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit RouterSink(LogRouter& logs) : base_sink(LineFormat()), logs_(logs) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::string_view text(line.data(), line.size());
    const bool is_cut = text.size() > kMaxLineBytes;
    if (is_cut) text = text.substr(0, kMaxLineBytes);
    Pass(EscapeControl(text) + (is_cut ? "..." : ""));
  }
  void flush_() override {}

  // A library that traces itself is faster than a console. The gap is told of where it ends.
  void Pass(const std::string& line) {
    if (missing_ > 0 && logs_.Offer("ddprun: warning: " + std::to_string(missing_) +
                                    (missing_ == 1 ? " log line is" : " log lines are") +
                                    " missing here: too many at once")) {
      missing_ = 0;
    }
    if (missing_ > 0 || !logs_.Offer(line)) ++missing_;
  }

  LogRouter& logs_;
  uint64_t missing_ = 0;
};

// As LogLevel has them.
constexpr std::array kLevels = {spdlog::level::trace, spdlog::level::debug, spdlog::level::info,
                                spdlog::level::warn,  spdlog::level::err,   spdlog::level::off};

}  // namespace

std::shared_ptr<spdlog::logger> MakeLogger(LogRouter& logs, LogLevel level) {
  auto logger = std::make_shared<spdlog::logger>("ddprun", std::make_shared<RouterSink>(logs));
  logger->set_level(kLevels[static_cast<size_t>(level)]);
  // spdlog's own handler writes to stderr past the router.
  logger->set_error_handler([&logs](const std::string& cause) {
    logs.Say("ddprun: warning: a log line is missing: " + EscapeControl(cause));
  });
  return logger;
}

}  // namespace ddprun::launcher
