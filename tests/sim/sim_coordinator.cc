#include "tests/sim/sim_coordinator.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/text.h"

namespace ddprun::sim {
namespace {

using rendezvous::Action;
using rendezvous::Event;

constexpr int kFirstPort = 10'000;
constexpr Duration kDesertionPatience = std::chrono::seconds(1);

void SetSession(Event& event, SessionId session) {
  std::visit(
      [session](auto& any) {
        if constexpr (requires { any.stamp; }) any.stamp.session = session;
        if constexpr (requires { any.session; }) any.session = session;
      },
      event);
}

}  // namespace

SimCoordinator::SimCoordinator(const Scenario& scenario, Timeline& timeline, Network& network,
                               Trace& trace, CoordinatorFile& file, Start start)
    : Process(timeline, start.clock),
      scenario_(scenario),
      network_(network),
      trace_(trace),
      file_(file),
      start_(start),
      random_(Mix(scenario.seed, 5, static_cast<uint64_t>(start_.life))) {
  if (start_.etcd != nullptr) {
    TakePlace();
  } else {
    ReadFile();
  }
}

void SimCoordinator::ReadFile() {
  const bool has_memory = file_.instance.is_known();
  // Without the file the time of day counts: it grows.
  const uint64_t time_of_day =
      1'000'000 + static_cast<uint64_t>(timeline_.now().time_since_epoch().count() / 1000);
  rendezvous::Beginning beginning{
      .epoch = Epoch{file_.epoch != Epoch{} ? file_.epoch.value + 1 : time_of_day},
      .instance = has_memory ? file_.instance : JobInstance{random_.Next(), random_.Next()},
      .is_remembered = has_memory,
      .restart_count = file_.restart_count,
      .spent = file_.spent,
      .bad_nodes = file_.bad_nodes,
      .verdict = file_.verdict};
  // The instance is the job's only once the machine says so, by a Record.
  file_.epoch = beginning.epoch;
  Begin(beginning);
}

void SimCoordinator::Begin(const rendezvous::Beginning& beginning) {
  // One that runs apart learns from the first node how large the job is.
  is_taken_up_ = beginning.is_remembered || beginning.verdict.has_value();
  rendezvous::Election election;
  if (start_.is_leader_gone) {
    election.gone_leader = Epoch{static_cast<uint64_t>(start_.seen_revision)};
  }
  machine_ = std::make_unique<rendezvous::RendezvousMachine>(
      start_.host < 0 ? std::nullopt : std::optional(scenario_.policy), beginning, now(),
      start_.etcd == nullptr ? std::nullopt : std::optional(election));
  trace_.CoordinatorStarted(start_.life, start_.host, beginning.epoch, beginning.is_remembered);
  if (beginning.verdict) trace_.VerdictDurable(start_.life);
  Enter([] {});
}

void SimCoordinator::TakePlace() {
  leadership_ = std::make_unique<SimLeadership>(
      scenario_, timeline_, *start_.etcd,
      SimLeadership::Setup{.node = start_.host,
                           .clock = start_.clock,
                           .self = {.address = absl::StrCat("10.0.0.", start_.host + 1),
                                    .port = static_cast<uint16_t>(kFirstPort + start_.life),
                                    .host = absl::StrCat("n", start_.host)},
                           .seen_revision = start_.seen_revision,
                           .seed = random_.Next(),
                           .begun =
                               [this](const rendezvous::Beginning& beginning) {
                                 Begin(beginning);
                                 start_.began(true, "");
                                 for (const auto& greeting : std::exchange(greetings_, {}))
                                   Enter(greeting);
                               },
                           .failed =
                               [this](const std::string& why) {
                                 has_ended_ = true;
                                 is_port_open_ = false;
                                 network_.CloseAllOf(*this);
                                 start_.began(false, why);
                               },
                           .lost = start_.lost,
                           .changed = [this] { Enter([this] { TakeTurns(); }); }});
  leadership_->Begin();
}

bool SimCoordinator::IsSpeaking(Duration ahead) const {
  return machine_ != nullptr && is_alive() && !is_paused() && !has_ended_ &&
         leadership_->MayTell(ahead);
}

void SimCoordinator::WhenGreeting(std::function<void()> then) {
  if (machine_ == nullptr) return greetings_.push_back(std::move(then));
  Enter(std::move(then));
}

void SimCoordinator::InTurn(std::function<void()> work) {
  TimePoint at = timeline_.now();
  if (!turns_.empty()) at = std::max(at, turns_.back().heard_at);
  if (timeline_.now() < lags_until_) at += lag_;
  turns_.push_back({at, std::move(work)});
  TakeTurns();
  if (at > timeline_.now()) timeline_.At(at, [this] { Enter([this] { TakeTurns(); }); });
}

void SimCoordinator::TakeTurns() {
  while (!turns_.empty() && turns_.front().heard_at <= timeline_.now() && MayTell()) {
    const std::function<void()> work = std::move(turns_.front().work);
    turns_.pop_front();
    if (!has_ended_) work();
  }
}

void SimCoordinator::Lag(Duration lag, TimePoint until) {
  lag_ = lag;
  lags_until_ = until;
}

void SimCoordinator::Pause() {
  Process::Pause();
  if (leadership_ != nullptr) leadership_->Pause();
}

void SimCoordinator::Resume() {
  if (leadership_ != nullptr) leadership_->Resume();
  Process::Resume();
}

void SimCoordinator::Die() {
  Process::Die();
  if (leadership_ != nullptr) leadership_->Die();
}

rendezvous::Stamp SimCoordinator::current() const {
  return {.session = {},
          .epoch = machine_->current().epoch,
          .round = machine_->current().round,
          .instance = machine_->current().instance};
}

void SimCoordinator::Kill() {
  Die();
  sessions_.clear();
  network_.CloseAllOf(*this);
}

void SimCoordinator::End() {
  if (std::exchange(has_ended_, true)) return;
  is_port_open_ = false;
  sessions_.clear();
  network_.CloseAllOf(*this);
}

void SimCoordinator::EndThen(bool is_resigning, std::function<void()> then) {
  TakeTurns();
  is_resigning_ = is_resigning;
  ended_ = std::move(then);
  const bool has_round = machine_->current().round != Round{};
  if (is_resigning || !has_round || machine_->verdict() || !machine_->has_nodes()) return EndNow();
  timeline_.At(clock_.WhenReads(now() + kDesertionPatience),
               [this] { Enter([this] { EndNow(); }); });
}

void SimCoordinator::EndNow() {
  const std::function<void()> then = std::exchange(ended_, nullptr);
  if (then == nullptr) return;
  has_ended_ = true;
  sessions_.clear();
  network_.CloseAllOf(*this);
  const bool has_round = machine_->current().round != Round{};
  const bool is_deserted = machine_->is_deserted() && !is_resigning_;
  const bool has_begun = is_taken_up_ || has_round;
  const bool is_over = machine_->is_finished() || !has_begun || is_deserted;
  using Ending = rendezvous::LeaderCore::Ending;
  leadership_->End(is_over ? Ending::kForget : Ending::kLeave, [this, then] {
    is_port_open_ = false;
    then();
  });
}

void SimCoordinator::HearUp(const StreamPtr& stream, const Up& up) {
  Enter([this, stream, up] {
    if (has_ended_) return network_.CloseAtCoordinator(stream);
    if (stream->session == SessionId{}) {
      stream->session = SessionId{++last_session_};
      sessions_[stream->session] = stream;
    }
    Event numbered = up.event;
    SetSession(numbered, stream->session);
    stream->transit.Correct(now(), up.sent, numbered);
    auto* joined = std::get_if<rendezvous::NodeJoined>(&numbered);
    if (joined != nullptr && !stream->is_local) {
      joined->source_addr = absl::StrCat("10.0.0.", stream->node + 1);
      joined->accepted_addr = "10.0.0.100";
    }
    InTurn([this, id = stream->session, posted = now(), numbered, sequence = up.sequence] {
      Event aged = numbered;
      rendezvous::AddWait(now() - posted, aged);
      machine_->NoteLag(now(), now() - posted);
      Apply(id, aged, sequence);
    });
  });
}

void SimCoordinator::HearUpBroken(const StreamPtr& stream, bool is_by_peer) {
  Enter([this, stream, is_by_peer] {
    InTurn([this, id = stream->session, is_by_peer] {
      if (sessions_.erase(id) > 0) StepMachine(rendezvous::SessionBroken{id, is_by_peer});
    });
  });
}

void SimCoordinator::Apply(SessionId id, const Event& event, uint64_t sequence) {
  // A session that the machine had closed may have more under way: that is heard by nobody.
  const auto session = sessions_.find(id);
  if (session == sessions_.end()) return;
  const StreamPtr stream = session->second;
  StepMachine(event);
  if (sequence == 0 || stream->is_local) return;
  network_.SendDown(stream, {current(), {}, sequence, machine_->beat_interval()});
}

void SimCoordinator::StepMachine(const Event& event) {
  const std::vector<Action> actions = machine_->Step(now(), event);
  trace_.CoordinatorStepped(start_.life, now(), *machine_, event, actions);
  if (!machine_->resignation().empty() && !std::exchange(has_resigned_, true)) {
    start_.resigns(machine_->resignation());
  }
  for (const Action& action : actions) CarryOut(action);
}

void SimCoordinator::CarryOut(const Action& action) {
  if (std::holds_alternative<rendezvous::Finish>(action)) {
    file_ = {};  // no coordinator of this job will be started again
    timeline_.After(std::chrono::milliseconds(1), [this] { Enter(start_.finished); });
    return;
  }
  if (const auto* record = std::get_if<rendezvous::Record>(&action)) return Write(*record);
  const std::optional<SessionId> target = rendezvous::TargetOf(action);
  const auto session = target ? sessions_.find(*target) : sessions_.end();
  if (session == sessions_.end()) return;
  const StreamPtr stream = session->second;
  const bool closes = std::holds_alternative<rendezvous::CloseSession>(action);
  if (!closes) network_.SendDown(stream, {.current = current(), .action = action});
  if (closes || std::holds_alternative<rendezvous::Refuse>(action)) {
    sessions_.erase(session);
    network_.CloseAtCoordinator(stream);
  }
}

void SimCoordinator::Write(const rendezvous::Record& record) {
  const bool has_verdict = record.verdict.has_value();
  if (leadership_ != nullptr) {
    const auto tell = [this] {
      Enter([this] { InTurn([this] { StepMachine(rendezvous::Recorded{}); }); });
    };
    return leadership_->Write(record, has_verdict ? std::function<void()>(tell) : nullptr);
  }
  const auto written = [this, has_verdict] {
    Enter([this, has_verdict] {
      if (has_verdict && !has_ended_) StepMachine(rendezvous::Recorded{});
    });
  };
  if (!scenario_.keeps_file) return timeline_.After(Duration{0}, written);
  const Duration takes =
      random_.Between(std::chrono::microseconds(50), Duration(std::chrono::milliseconds(30)));
  // One thread writes: no record overtakes an earlier one.
  written_at_ = std::max(written_at_, timeline_.now() + takes);
  timeline_.At(written_at_, [this, record, has_verdict, written] {
    if (!is_alive()) return;  // killed before it was on disk
    file_ = {record.epoch, record.instance,  record.restart_count,
             record.spent, record.bad_nodes, record.verdict};
    if (has_verdict) trace_.VerdictDurable(start_.life);
    written();
  });
}

void SimCoordinator::AfterWork() {
  if (ended_ && !machine_->has_nodes()) EndNow();
  if (has_ended_ || machine_ == nullptr) return;
  // Without a turn nothing is due: it comes with etcd's word.
  if (!MayTell()) return ArmTimer(std::nullopt);
  const std::optional<TimePoint> deadline = machine_->NextDeadline();
  // What was said by then is heard first.
  if (deadline && *deadline <= now() && turns_.empty()) StepMachine(rendezvous::TimePassed{});
  ArmTimer(turns_.empty() ? machine_->NextDeadline() : std::nullopt);
}

}  // namespace ddprun::sim
