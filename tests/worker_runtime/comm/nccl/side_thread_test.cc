#include "worker_runtime/comm/nccl/side_thread.h"

#include <atomic>
#include <future>

#include <doctest/doctest.h>

namespace ddp::internal {
namespace {

using namespace std::chrono_literals;
using Duration = SideThread::Clock::duration;

constexpr auto kLong = 60s;

TEST_CASE("side thread: a run ends before who asked for it goes on") {
  SideThread thread;
  int runs = 0;
  REQUIRE(thread.Start([&] { ++runs; }));
  for (int i = 1; i <= 100; ++i) {
    CHECK(thread.Run(kLong) == Duration::zero());
    CHECK(runs == i);
  }
  CHECK(thread.Stop(kLong));
  CHECK(thread.Stop(kLong));
}

TEST_CASE("side thread: who asks does not hang with a run, which is not asked for twice") {
  std::promise<void> promise;
  const std::shared_future<void> answer = promise.get_future().share();
  std::atomic<int> runs = 0;
  SideThread thread;
  REQUIRE(thread.Start([&] {
    ++runs;
    answer.wait();
  }));
  const Duration silence = thread.Run(1ms);
  CHECK(silence >= 1ms);
  CHECK(thread.Run(1ms) > silence);
  while (runs == 0) std::this_thread::yield();
  promise.set_value();
  CHECK(thread.Stop(kLong));
  CHECK(runs == 1);
}

TEST_CASE("side thread: one that does not end is left to itself") {
  std::promise<void> never;
  SideThread thread;
  std::promise<void> begun;
  // The thread may outlive this test and the static objects: what it waits for is its own.
  REQUIRE(thread.Start([&begun, answer = never.get_future().share()] {
    begun.set_value();
    answer.wait();
  }));
  CHECK(thread.Run(1ms) > Duration::zero());
  begun.get_future().wait();  // one that Stop() finds not begun is left out
  CHECK_FALSE(thread.Stop(1ms));
  CHECK(thread.Stop(1ms));
  never.set_value();
}

TEST_CASE("side thread: one that was not started has nothing to wait for") {
  SideThread thread;
  CHECK(thread.Run(kLong) == Duration::zero());
  CHECK(thread.Stop(kLong));
}

}  // namespace
}  // namespace ddp::internal
