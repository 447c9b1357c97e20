#include "rendezvous/base/mailbox.h"

#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/steady_clock.h"

namespace ddprun {
namespace {

constexpr std::chrono::seconds kPatience{30};

TEST_CASE("mailbox: tasks run in order, those posted before the close included, later ones never") {
  Mailbox mailbox;
  std::vector<std::string> done;
  mailbox.Post([&] {
    done.push_back("first");
    mailbox.Post([&] { done.push_back("third"); });
  });
  mailbox.Post([&] { done.push_back("second"); });
  CHECK(mailbox.RunFor());
  CHECK(done == std::vector<std::string>{"first", "second"});
  mailbox.Close();
  mailbox.Post([&] { done.push_back("too late"); });
  CHECK_FALSE(mailbox.RunFor());
  CHECK(done == std::vector<std::string>{"first", "second", "third"});
}

TEST_CASE("mailbox: without a task it is left at the deadline") {
  Mailbox mailbox;
  const TimePoint deadline = SteadyNow() + std::chrono::milliseconds(5);  // lower bound: the wait
  CHECK(mailbox.RunFor(std::chrono::milliseconds(5)));                    // lower bound: the wait
  CHECK(SteadyNow() >= deadline);
}

TEST_CASE("helper thread: its end waits for what was posted") {
  bool is_done = false;
  {
    const HelperThread helper(kPatience, SteadyClock());
    REQUIRE(helper.is_running());
    helper.Post([&is_done] { is_done = true; });
  }
  CHECK(is_done);
}

TEST_CASE("helper thread: one that hangs is left behind, with what its task owns") {
  std::promise<void> release;
  const auto owned = std::make_shared<std::promise<void>>();
  std::future<void> ended = owned->get_future();
  {
    const HelperThread helper(std::chrono::milliseconds(1), SteadyClock());  // no limit: a delay
    REQUIRE(helper.is_running());
    helper.Post([owned, gate = release.get_future().share()] {
      gate.wait();
      owned->set_value();
    });
  }
  CHECK(ended.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  release.set_value();
  CHECK(ended.wait_for(kPatience) == std::future_status::ready);
}

}  // namespace
}  // namespace ddprun
