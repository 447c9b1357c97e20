// A coordinator asks its memory before it says anything.
#include "rendezvous/server/job_memory.h"

#include <doctest/doctest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/server/coordinator.h"
#include "rendezvous/server/job_file.h"
#include "rendezvous/server/session.h"
#include "tests/rendezvous/server/event_log.h"
#include "tests/rendezvous/server/local_agent.h"
#include "tests/support/virtual_clock.h"

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
  void Leave(Duration, std::optional<Duration>) override { Note("leave"); }
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

// One whose coordinator takes `each` to hear anything, once the test lets it begin.
class Slow final : public JobMemory {
 public:
  explicit Slow(testing::VirtualClock& clock) : clock_(clock) {}
  absl::StatusOr<Beginning> Begin(uint16_t, Duration) override { return BeginAnew(); }
  void Write(const Record&, std::function<void()> on_written) override {
    if (on_written) on_written();
  }
  void Forget(Duration) override {}
  bool AwaitTurn(bool&) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_open_; });
    clock_.Advance(each_);
    return true;
  }
  void SetEach(Duration each) {
    const std::lock_guard lock(mutex_);
    each_ = each;
  }
  void SetOpen(bool is_open) {
    const std::lock_guard lock(mutex_);
    is_open_ = is_open;
    changed_.notify_all();
  }

 private:
  testing::VirtualClock& clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = true;
  Duration each_{0};
};

// A node elsewhere, of which only the coordinator's side is there.
class Remote final : public Session {
 public:
  void Send(TimePoint, const Stamp&, const Action& action) override {
    const std::lock_guard lock(mutex_);
    if (const auto* assign = std::get_if<Assign>(&action)) {
      place_ = assign->assignment;
    } else if (std::holds_alternative<Drain>(action)) {
      is_drained_ = true;
    }
    changed_.notify_all();
  }
  void Processed(const Stamp&, const Event&, Duration) override {
    const std::lock_guard lock(mutex_);
    ++processed_;
    changed_.notify_all();
  }
  void Close() override {
    const std::lock_guard lock(mutex_);
    is_drained_ = true;
    changed_.notify_all();
  }
  std::optional<Assignment> AwaitPlace() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, EventLog::kPatience, [this] { return place_.has_value(); });
    return place_;
  }
  // Until so much of what it said was heard, or it has lost its place. False: it has lost it.
  bool AwaitProcessed(int count) {
    std::unique_lock lock(mutex_);
    const bool is_over = changed_.wait_for(lock, EventLog::kPatience,
                                           [&] { return is_drained_ || processed_ >= count; });
    return is_over && !is_drained_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Assignment> place_;
  int processed_ = 0;
  bool is_drained_ = false;
};

TEST_CASE("coordinator: one that is late to hear loses no node that has beaten") {
  testing::VirtualClock clock;
  const auto memory = std::make_shared<Slow>(clock);
  Coordinator::Options options;
  options.policy = TestPolicy(2, 2);
  options.memory = memory;
  auto coordinator = Coordinator::Start(std::move(options), clock);
  REQUIRE(coordinator.ok());
  const std::shared_ptr<Inbox> inbox = (*coordinator)->inbox();
  const std::shared_ptr<Remote> remotes[] = {std::make_shared<Remote>(),
                                             std::make_shared<Remote>()};
  SessionId sessions[2];
  for (int i = 0; i < 2; ++i) {
    sessions[i] = inbox->Open(remotes[i]).value();
    NodeJoined join{.node = TestNode(std::to_string(i)), .policy = TestPolicy(2, 2)};
    join.source_addr = "10.0.0." + std::to_string(i + 1);
    join.accepted_addr = "10.0.0.100";
    inbox->Post(sessions[i], join);
  }
  const std::optional<Assignment> place = remotes[0]->AwaitPlace();
  REQUIRE(place.has_value());
  REQUIRE(remotes[1]->AwaitPlace().has_value());
  const HeartbeatReceived beat{
      .stamp = {.epoch = place->epoch, .round = place->round, .instance = place->instance}};
  memory->SetOpen(false);
  // To hear them takes longer than evict_after; no step of it is a stall.
  memory->SetEach(std::chrono::milliseconds(500));  // no limit: of a virtual clock
  constexpr int kBeats = 30;
  inbox->Post(sessions[1], beat);
  for (int i = 0; i < kBeats; ++i) inbox->Post(sessions[0], beat);
  inbox->Post(sessions[1], beat);
  memory->SetOpen(true);
  CHECK(remotes[1]->AwaitProcessed(3));
  CHECK(remotes[0]->AwaitProcessed(kBeats + 1));
  memory->SetEach(Duration{0});
  // Else its end waits for them, for a second that does not pass by itself.
  for (const SessionId session : sessions) inbox->Post(session, NodeLeft{});
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
