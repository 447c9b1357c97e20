// A coordinator asks its memory before it says anything.
#include "rendezvous/server/job_memory.h"

#include <doctest/doctest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/server/coordinator.h"
#include "rendezvous/server/job_file.h"
#include "tests/rendezvous/server/event_log.h"
#include "tests/rendezvous/server/local_agent.h"

namespace ddprun::rendezvous {
namespace {

// One whose coordinator may speak when the test says so.
class Gatekeeper final : public JobMemory {
 public:
  absl::StatusOr<Beginning> Begin(uint16_t, Duration) override { return BeginAnew(); }
  void Write(const Record&, std::function<void()> on_written) override {
    if (on_written) on_written();
  }
  void Forget(Duration) override { Note("forget"); }
  void Leave(Duration) override { Note("leave"); }
  bool AwaitTurn(bool& has_waited) override {
    std::unique_lock lock(mutex_);
    has_waited = !is_open_;
    ++asked_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_open_ || is_over_; });
    return is_open_;
  }
  void EndWaits() override {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }

  void SetOpen(bool is_open) {
    const std::lock_guard lock(mutex_);
    is_open_ = is_open;
    asked_ = 0;
    changed_.notify_all();
  }
  // Until it has been asked once more.
  bool AwaitQuestion() {
    std::unique_lock lock(mutex_);
    const int before = std::exchange(asked_, 0);
    return before > 0 ||
           changed_.wait_for(lock, EventLog::kPatience, [this] { return asked_ > 0; });
  }
  std::string told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }

 private:
  void Note(const std::string& what) {
    const std::lock_guard lock(mutex_);
    told_ += what;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = true;
  bool is_over_ = false;
  int asked_ = 0;
  std::string told_;
};

std::unique_ptr<Coordinator> StartWith(std::shared_ptr<JobMemory> memory,
                                       std::function<void(const std::string&)> log = nullptr) {
  Coordinator::Options options;
  options.log_step = std::move(log);
  options.policy = TestPolicy(1, 1);
  options.memory = std::move(memory);
  auto coordinator = Coordinator::Start(std::move(options), SteadyClock());
  REQUIRE(coordinator.ok());
  return *std::move(coordinator);
}

TEST_CASE("job memory: a coordinator that may not speak says nothing, and all of it when it may") {
  const auto memory = std::make_shared<Gatekeeper>();
  EventLog log;
  auto coordinator = StartWith(memory);
  memory->SetOpen(false);
  LocalAgent agent(*coordinator, TestPolicy(1, 1), log);
  agent.Join(TestNode("a", 4001));
  REQUIRE(memory->AwaitQuestion());
  CHECK(log.Text() == "");
  memory->SetOpen(true);
  CHECK(log.Await<Assigned>());
  coordinator->Stop();
  CHECK(memory->told() == "leave");
}

TEST_CASE("job memory: what was said to one that might not speak is as old as it has waited") {
  const auto memory = std::make_shared<Gatekeeper>();
  EventLog log;
  std::promise<std::string> failed;
  auto coordinator = StartWith(memory, [&](const std::string& line) {
    if (line.starts_with("hears failed")) failed.set_value(line);
  });
  LocalAgent agent(*coordinator, TestPolicy(1, 1), log);
  agent.Join(TestNode("a", 4001));
  const auto assigned = log.Await<Assigned>();
  REQUIRE(assigned);
  memory->SetOpen(false);
  agent.ReportFailed(assigned->assignment.round, {});
  REQUIRE(memory->AwaitQuestion());
  const TimePoint until = SteadyNow() + std::chrono::milliseconds(20);  // lower bound: its age
  while (SteadyNow() < until) std::this_thread::yield();
  memory->SetOpen(true);
  std::future<std::string> line = failed.get_future();
  REQUIRE(line.wait_for(EventLog::kPatience) == std::future_status::ready);
  const std::string text = line.get();
  INFO(text);
  const size_t age = text.find("age=");
  REQUIRE(age != std::string::npos);
  CHECK(std::stoi(text.substr(age + 4)) >= 20);
}

TEST_CASE("job memory: one that never may again ends without a word") {
  const auto memory = std::make_shared<Gatekeeper>();
  EventLog log;
  auto coordinator = StartWith(memory);
  memory->SetOpen(false);
  LocalAgent agent(*coordinator, TestPolicy(1, 1), log);
  agent.Join(TestNode("a", 4001));
  REQUIRE(memory->AwaitQuestion());
  coordinator->Stop();
  CHECK(log.Text() == "");
  // Of a job that never began nothing is to be kept.
  CHECK(memory->told() == "forget");
}

}  // namespace
}  // namespace ddprun::rendezvous
