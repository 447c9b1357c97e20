#include "launcher/logs/log_thread.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string>

#include <doctest/doctest.h>

#include "launcher/logs/file_sink.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
    read_end.Reset(ends[0]);
    write_end.Reset(ends[1]);
  }
  UniqueFd read_end;
  UniqueFd write_end;
};

TEST_CASE(
    "log thread: one whose file does not answer is left at its deadline, and names the file") {
  Pipe disk;  // full, and nobody reads it
  REQUIRE(fcntl(disk.write_end.get(), F_SETFL, O_NONBLOCK) == 0);
  const std::string much(4096, 'x');
  while (write(disk.write_end.get(), much.data(), much.size()) > 0) {
  }
  REQUIRE(fcntl(disk.write_end.get(), F_SETFL, 0) == 0);
  Pipe console;
  auto started = LogThread::Start(console.write_end.get(), console.write_end.get());
  REQUIRE(started.ok());
  // Never destroyed: the thread uses it after the test.
  static LogThread* const thread = started->release();

  Pipe channel;
  REQUIRE(fcntl(channel.read_end.get(), F_SETFL, O_NONBLOCK) == 0);
  StreamPlan plan{.is_stderr = true, .read_end = std::move(channel.read_end)};
  plan.file = FileSink(std::move(disk.write_end), "/dead/stderr.log");
  thread->Add(std::move(plan));
  REQUIRE(write(channel.write_end.get(), "line\n", 5) == 5);

  CHECK_FALSE(thread->Drain(100ms));
  CHECK(thread->busy_file(100ms) == "/dead/stderr.log");
  const TimePoint before = SteadyNow();
  CHECK_FALSE(thread->End(100ms));
  CHECK(SteadyNow() - before < 20s);
}

TEST_CASE("log thread: one that nothing holds ends, and names no file") {
  Pipe console;
  auto started = LogThread::Start(console.write_end.get(), console.write_end.get());
  REQUIRE(started.ok());
  (*started)->Say("a line");
  CHECK((*started)->End(20s));
  CHECK((*started)->busy_file(0ms).empty());
}

}  // namespace
}  // namespace ddprun::launcher
