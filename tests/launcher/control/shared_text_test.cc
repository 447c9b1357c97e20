#include "launcher/control/shared_text.h"

#include <doctest/doctest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using Snapshot = std::shared_ptr<const JobSnapshot>;

Snapshot OfRound(uint64_t round) {
  auto snapshot = std::make_shared<JobSnapshot>();
  snapshot->job.round = round;
  return snapshot;
}

class Fixture {
 public:
  void Ask(const Snapshot& snapshot, const std::string& name = "status") {
    texts_.Give(
        name, snapshot,
        [this](const JobSnapshot& of) {
          ++renderings;
          if (gate) gate->wait();
          return "round " + std::to_string(of.job.round);
        },
        [this](std::optional<std::string> text) { answers.push_back(text.value_or("(none)")); });
  }
  bool AwaitAnswers(size_t count) {
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (answers.size() < count && std::chrono::steady_clock::now() < end) {
      if (io_.stopped()) io_.restart();
      io_.run_one_for(1s);
    }
    return answers.size() == count;
  }

  std::atomic<int> renderings{0};
  std::optional<std::shared_future<void>> gate;  // before the text is made
  std::vector<std::string> answers;

 private:
  boost::asio::io_context io_;
  FileThread thread_{io_};
  SharedText texts_{thread_};
};

TEST_CASE(
    "shared text: a thousand who ask at once get one rendering, and so do those behind them") {
  Fixture fixture;
  const Snapshot snapshot = OfRound(7);
  std::promise<void> open;
  fixture.gate = open.get_future().share();
  for (int i = 0; i < 1000; ++i) fixture.Ask(snapshot);
  CHECK(fixture.answers.empty());
  open.set_value();
  REQUIRE(fixture.AwaitAnswers(1000));
  fixture.Ask(snapshot);
  REQUIRE(fixture.AwaitAnswers(1001));
  CHECK(fixture.answers == std::vector<std::string>(1001, "round 7"));
  CHECK(fixture.renderings.load() == 1);
}

TEST_CASE("shared text: another snapshot and another name have renderings of their own") {
  Fixture fixture;
  const Snapshot first = OfRound(1), second = OfRound(2);
  fixture.Ask(first);
  REQUIRE(fixture.AwaitAnswers(1));
  fixture.Ask(second);
  fixture.Ask(second, "metrics");
  REQUIRE(fixture.AwaitAnswers(3));
  CHECK(fixture.answers == std::vector<std::string>{"round 1", "round 2", "round 2"});
  CHECK(fixture.renderings.load() == 3);
}

TEST_CASE("shared text: who comes while an older text is being made gets that, and no second one") {
  Fixture fixture;
  std::promise<void> open;
  fixture.gate = open.get_future().share();
  fixture.Ask(OfRound(1));
  const Snapshot second = OfRound(2);
  fixture.Ask(second);
  open.set_value();
  REQUIRE(fixture.AwaitAnswers(2));
  CHECK(fixture.renderings.load() == 1);
  fixture.Ask(second);
  REQUIRE(fixture.AwaitAnswers(3));
  CHECK(fixture.answers == std::vector<std::string>{"round 1", "round 1", "round 2"});
}

}  // namespace
}  // namespace ddprun::launcher
