#include "launcher/agent/file_thread.h"

#include <doctest/doctest.h>

#include <boost/asio/io_context.hpp>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using Names = std::vector<std::string>;

struct Fixture {
  // Until `is_done`, or a minute.
  template <typename Condition>
  bool RunUntil(Condition is_done) {
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (!is_done()) {
      if (io.stopped()) io.restart();
      if (std::chrono::steady_clock::now() > end) return false;
      io.run_one_for(1s);
    }
    return true;
  }
  // Asks for `work`, whose answer is noted as "name" or "name late".
  void Ask(const std::string& name, Duration timeout, std::function<int()> work) {
    files->Ask<int>(name, "/files/" + name, timeout, std::move(work),
                    [this, name](std::optional<int> result) {
                      answers.push_back(result ? name : name + " late");
                    });
  }

  boost::asio::io_context io;
  Names answers;
  Names slow;
  // lower bound: what is told of as slow hangs until a test ends it
  std::unique_ptr<FileThread> files = std::make_unique<FileThread>(
      io, [this](const std::string& file) { slow.push_back(file); }, 1ms);
};

// A call that hangs until it is released.
struct Hang {
  std::shared_ptr<std::promise<void>> release = std::make_shared<std::promise<void>>();
  std::function<int()> work() const {
    return [release = release] {
      release->get_future().wait();
      return 1;
    };
  }
};

TEST_CASE("file thread: what is asked is done in order, on one other thread, and answered here") {
  Fixture fixture;
  std::vector<std::thread::id> threads;
  Names done;
  for (const std::string name : {"a", "b", "c"}) {
    fixture.Ask(name, 60s, [&threads, &done, name] {
      done.push_back(name);
      threads.push_back(std::this_thread::get_id());
      return 1;
    });
  }
  CHECK(fixture.answers.empty());  // never from inside Ask
  REQUIRE(fixture.RunUntil([&] { return fixture.answers.size() == 3; }));
  CHECK(fixture.answers == Names{"a", "b", "c"});
  CHECK(done == Names{"a", "b", "c"});
  CHECK(threads[0] == threads[2]);
  CHECK(threads[0] != std::this_thread::get_id());
}

TEST_CASE("file thread: each question is answered in its time, also behind a call that hangs") {
  Fixture fixture;
  const Hang hang;
  std::promise<void> has_begun;
  fixture.Ask("hung", 60s, [&has_begun, wait = hang.work()] {
    has_begun.set_value();
    return wait();
  });
  has_begun.get_future().wait();
  // lower bound: it stands behind what hangs
  fixture.Ask("behind", 5ms, [] {
    FAIL("it has not begun in its time");
    return 1;
  });
  fixture.Ask("patient", 60s, [] { return 1; });
  REQUIRE(fixture.RunUntil([&] { return fixture.answers.size() == 1; }));
  CHECK(fixture.answers == Names{"behind late"});
  CHECK(fixture.slow == Names{"/files/hung"});  // once, and of the one that hangs
  CHECK_FALSE(fixture.files->is_idle());
  hang.release->set_value();
  REQUIRE(fixture.RunUntil([&] { return fixture.answers.size() == 3; }));
  CHECK(fixture.answers == Names{"behind late", "hung", "patient"});
  REQUIRE(fixture.RunUntil([&] { return fixture.files->is_idle(); }));
}

TEST_CASE("file thread: what is done too late has been answered, and is not again") {
  Fixture fixture;
  const Hang hang;
  fixture.Ask("hung", 1ms, hang.work());  // lower bound: it hangs
  REQUIRE(fixture.RunUntil([&] { return fixture.answers.size() == 1; }));
  hang.release->set_value();
  fixture.Ask("next", 60s, [] { return 1; });
  REQUIRE(fixture.RunUntil([&] { return fixture.answers.size() == 2; }));
  CHECK(fixture.answers == Names{"hung late", "next"});
}

TEST_CASE("file thread: the work itself says what it touches") {
  Fixture fixture;
  const Hang hang;
  std::promise<void> has_touched;
  fixture.Ask("hung", 60s, [&, wait = hang.work()] {
    fixture.files->Touch("/files/deep/down");
    has_touched.set_value();
    return wait();
  });
  has_touched.get_future().wait();
  REQUIRE(fixture.RunUntil([&] { return !fixture.slow.empty(); }));
  CHECK(fixture.slow == Names{"/files/deep/down"});
  hang.release->set_value();
  REQUIRE(fixture.RunUntil([&] { return fixture.answers.size() == 1; }));
}

TEST_CASE("file thread: one that hangs is left behind, and tells nobody when it is done") {
  const Hang hang;
  std::promise<void> has_ended;
  {
    Fixture fixture;
    std::promise<void> has_begun;
    fixture.Ask("hung", 60s, [&has_begun, &has_ended, wait = hang.work()] {
      has_begun.set_value();
      wait();
      has_ended.set_value();
      return 1;
    });
    has_begun.get_future().wait();
  }
  hang.release->set_value();
  REQUIRE(has_ended.get_future().wait_for(60s) == std::future_status::ready);
}

}  // namespace
}  // namespace ddprun::launcher
