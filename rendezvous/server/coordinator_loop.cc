#include "rendezvous/server/coordinator_loop.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {

CoordinatorLoop::CoordinatorLoop(const std::optional<Policy>& policy, const Beginning& beginning,
                                 std::shared_ptr<JobFile> file, Hooks hooks)
    : file_(std::move(file)),
      hooks_(std::move(hooks)),
      machine_(policy, beginning, SteadyNow()),
      next_tick_(SteadyNow() + tick_interval()),
      verdict_(beginning.verdict),
      has_job_(policy || beginning.is_remembered || beginning.verdict),
      has_begun_(beginning.is_remembered || beginning.verdict),
      run_id_(policy ? policy->run_id : beginning.run_id) {}

absl::Status CoordinatorLoop::Start() {
  thread_ = StartQuietThread([this] { Run(); });
  if (thread_.joinable()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("start a thread for the coordinator: ", kNoThreadText));
}

CoordinatorLoop::~CoordinatorLoop() { Stop(); }

std::optional<SessionId> CoordinatorLoop::Open(std::shared_ptr<Session> session) {
  const std::lock_guard lock(mutex_);
  if (is_stopping_ || sessions_.size() >= kMaxSessions) return std::nullopt;
  const SessionId id{++last_session_};
  sessions_.emplace(id, std::move(session));
  return id;
}

void CoordinatorLoop::Post(Event event) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) return;
    events_.push_back(std::move(event));
  }
  arrived_.notify_one();
}

bool CoordinatorLoop::WaitFinished(Duration timeout) {
  const auto deadline = ToSteady(SteadyNow() + timeout);
  std::unique_lock lock(mutex_);
  return finished_.wait_until(lock, deadline, [this] { return is_finished_; });
}

bool CoordinatorLoop::has_job() const {
  const std::lock_guard lock(mutex_);
  return has_job_;
}

bool CoordinatorLoop::has_begun() const {
  const std::lock_guard lock(mutex_);
  return has_begun_;
}

std::string CoordinatorLoop::run_id() const {
  const std::lock_guard lock(mutex_);
  return run_id_;
}

void CoordinatorLoop::Stop() {
  const std::lock_guard stop_lock(stop_mutex_);
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  arrived_.notify_one();
  if (thread_.joinable()) thread_.join();
  std::map<SessionId, std::shared_ptr<Session>> sessions;
  {
    const std::lock_guard lock(mutex_);
    sessions.swap(sessions_);
    events_.clear();
  }
  for (const auto& [id, session] : sessions) session->Close();
}

void CoordinatorLoop::Run() {
  for (;;) {
    std::deque<Event> events = WaitForEvents();
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_) return;
    }
    // What agents said before deadlines that may have passed meanwhile: a coordinator that was
    // stopped for a while finds their heartbeats here.
    for (const Event& event : events) Apply(event);
    TickSessions();
    const std::optional<TimePoint> deadline = machine_.NextDeadline();
    if (deadline && *deadline <= SteadyNow()) Apply(TimePassed{});
  }
}

std::deque<Event> CoordinatorLoop::WaitForEvents() {
  const auto wake_up = ToSteady(NextWakeUp());
  std::unique_lock lock(mutex_);
  arrived_.wait_until(lock, wake_up, [this] { return is_stopping_ || !events_.empty(); });
  return std::exchange(events_, {});
}

TimePoint CoordinatorLoop::NextWakeUp() const {
  const std::optional<TimePoint> deadline = machine_.NextDeadline();
  return deadline ? std::min(*deadline, next_tick_) : next_tick_;
}

void CoordinatorLoop::Apply(const Event& event) {
  const TimePoint now = SteadyNow();
  const SessionId id = SessionOf(event);
  const std::shared_ptr<Session> session = Find(id);
  const bool is_break = std::holds_alternative<SessionBroken>(event);
  const bool is_our_own =
      std::holds_alternative<TimePassed>(event) || std::holds_alternative<Recorded>(event);
  // What is left in the inbox of a session that the machine had closed is dropped.
  if (session == nullptr && !is_our_own) return;
  if (is_break) Forget(id);
  StepMachine(now, event);
  if (session != nullptr && !is_break) session->Processed(current(), event);
}

void CoordinatorLoop::StepMachine(TimePoint now, const Event& event) {
  const bool was_open = machine_.policy() == nullptr;
  const std::vector<Action> actions = machine_.Step(now, event);
  if (was_open && machine_.policy() != nullptr) {
    const std::lock_guard lock(mutex_);
    has_job_ = true;
    run_id_ = machine_.policy()->run_id;
  }
  if (!has_begun_ && machine_.current().round != Round{}) {
    const std::lock_guard lock(mutex_);
    has_begun_ = true;
  }
  // These come every second and would hide the rest.
  const bool is_routine =
      std::holds_alternative<HeartbeatReceived>(event) || std::holds_alternative<TimePassed>(event);
  if (hooks_.log_step && !(is_routine && actions.empty()))
    hooks_.log_step("hears " + RenderEvent(event));
  for (const Action& action : actions) {
    if (hooks_.log_step) {
      const std::optional<SessionId> target = TargetOf(action);
      const std::string whom = target ? " session=" + std::to_string(target->value) + ":" : "";
      hooks_.log_step("says" + whom + " " + RenderAction(action));
    }
    CarryOut(now, action);
  }
}

void CoordinatorLoop::TickSessions() {
  const TimePoint now = SteadyNow();
  if (now < next_tick_) return;
  next_tick_ = now + tick_interval();
  std::vector<std::shared_ptr<Session>> sessions;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, session] : sessions_) sessions.push_back(session);
  }
  for (const std::shared_ptr<Session>& session : sessions) {
    const std::optional<Event> beat = session->Tick(now);
    if (beat) StepMachine(now, *beat);
  }
}

// An agent of this process is heard so often: well within the time after which it would be evicted.
Duration CoordinatorLoop::tick_interval() const {
  const Policy* policy = machine_.policy();
  if (policy == nullptr) return kMaxTickInterval;
  return std::clamp(policy->evict_after / 3, Duration(std::chrono::milliseconds(10)),
                    kMaxTickInterval);
}

void CoordinatorLoop::CarryOut(TimePoint now, const Action& action) {
  if (std::holds_alternative<Finish>(action)) {
    {
      const std::lock_guard lock(mutex_);
      is_finished_ = true;
      verdict_ = machine_.verdict();
    }
    finished_.notify_all();
    if (hooks_.on_finished) hooks_.on_finished();
    return;
  }
  if (const auto* record = std::get_if<Record>(&action)) {
    WriteRecord(*record);
    return;
  }
  const SessionId id = *TargetOf(action);
  const std::shared_ptr<Session> session = Find(id);
  if (session == nullptr) return;  // broken meanwhile; its SessionBroken is in the inbox
  const bool closes = std::holds_alternative<CloseSession>(action);
  if (!closes) session->Send(now, current(), action);
  if (closes || std::holds_alternative<Refuse>(action)) {
    Forget(id);
    session->Close();
  }
}

void CoordinatorLoop::WriteRecord(const Record& record) {
  // The file's thread may outlive this loop.
  const auto tell = [weak = weak_from_this()] {
    if (const std::shared_ptr<CoordinatorLoop> loop = weak.lock()) loop->Post(Recorded{});
  };
  if (file_ != nullptr) {
    file_->Write(record, record.verdict ? std::function<void()>(tell) : nullptr);
  } else if (record.verdict) {
    tell();
  }
}

std::optional<Verdict> CoordinatorLoop::verdict() const {
  const std::lock_guard lock(mutex_);
  return verdict_;
}

std::shared_ptr<Session> CoordinatorLoop::Find(SessionId id) {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second;
}

void CoordinatorLoop::Forget(SessionId id) {
  const std::lock_guard lock(mutex_);
  sessions_.erase(id);
}

}  // namespace ddprun::rendezvous
