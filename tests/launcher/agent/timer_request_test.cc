#include "launcher/agent/file_timers.h"

#include <doctest/doctest.h>

#include <random>

namespace ddprun::launcher {
namespace {

constexpr char kLine[] =
    R"({"version": 1, "pid": 77, "scope_id": "a.py#3", "expiration_time": 1.5, "signal": 9})";

TEST_CASE("timer request: what PyTorch's client writes is read") {
  CHECK(ParseTimerRequest(kLine) == TimerRequest{77, "a.py#3", 1.5, 9});
  CHECK(ParseTimerRequest(
            R"({"version": 1, "pid": 77, "scope_id": "", "expiration_time": -1, "signal": 0})") ==
        TimerRequest{77, "", -1, 0});
}

TEST_CASE("timer request: anything else is none") {
  for (const std::string& line : {
           std::string(),
           std::string("x"),
           std::string("[]"),
           std::string("{}"),
           std::string(kLine).substr(0, 50),
           std::string("\xff\xfe\0", 3),
           std::string(100, '[') + std::string(100, ']'),
           std::string(kLine) + std::string(5000, ' '),
           std::string(R"({"pid": "77", "scope_id": "", "expiration_time": 1, "signal": 9})"),
           std::string(R"({"pid": 1.5, "scope_id": "", "expiration_time": 1, "signal": 9})"),
           std::string(R"({"pid": 77, "scope_id": 3, "expiration_time": 1, "signal": 9})"),
           std::string(R"({"pid": 77, "scope_id": "", "expiration_time": null, "signal": 9})"),
           std::string(R"({"pid": 77, "scope_id": "", "expiration_time": NaN, "signal": 9})"),
           std::string(R"({"pid": 77, "scope_id": [""], "expiration_time": 1, "signal": 9})"),
           // Those that kill() would read as a group, or everybody.
           std::string(R"({"pid": 0, "scope_id": "", "expiration_time": 1, "signal": 9})"),
           std::string(R"({"pid": -1, "scope_id": "", "expiration_time": 1, "signal": 9})"),
           std::string(R"({"pid": 1, "scope_id": "", "expiration_time": 1, "signal": 9})"),
           std::string(R"({"pid": 4294967297, "scope_id": "", "expiration_time": 1, "signal": 9})"),
           std::string(R"({"pid": 77, "scope_id": "", "expiration_time": 1, "signal": 65})"),
       }) {
    CAPTURE(line);
    CHECK_FALSE(ParseTimerRequest(line));
  }
}

TEST_CASE("timer request: a message has the beginning of a long scope, in whole characters") {
  CHECK(ShortScope("a.py#3") == "a.py#3");
  CHECK(ShortScope(std::string(100, 'x')) == std::string(100, 'x'));
  CHECK(ShortScope(std::string(3500, 'x')) == std::string(100, 'x') + "...");
  CHECK(ShortScope(std::string(98, 'x') + "\xe2\x82\xac" + "y") == std::string(98, 'x') + "...");
}

TEST_CASE("timer request: random bytes in a good line do no harm") {
  std::mt19937 random(11);
  for (int i = 0; i < 20000; ++i) {
    std::string line = kLine;
    for (int k = 0; k < 2; ++k) line[random() % line.size()] = static_cast<char>(random());
    const auto timer = ParseTimerRequest(line);
    if (timer) CHECK(timer->pid > 1);
  }
}

}  // namespace
}  // namespace ddprun::launcher
