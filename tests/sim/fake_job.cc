#include "tests/sim/fake_job.h"

#include <algorithm>
#include <utility>

#include "rendezvous/core/text.h"

namespace ddprun::rendezvous::testing {

FakeJob::FakeJob(const Policy& policy, const Beginning& beginning)
    : policy_(policy),
      machine_(std::make_unique<RendezvousMachine>(policy, beginning, TimePoint{})),
      checker_(policy),
      file_{.instance = {}, .epoch = beginning.epoch, .verdict = std::nullopt} {}

void FakeJob::Restart(bool keeps_file) {
  ++starts_;
  is_disk_hanging_ = false;
  // Without its file the epoch comes from the time of day.
  Beginning beginning{.epoch = Epoch{file_.epoch.value + 100},
                      .instance = {.high = 7, .low = starts_},
                      .verdict = std::nullopt};
  if (keeps_file) {
    beginning.epoch = Epoch{file_.epoch.value + 1};
    beginning.restart_count = file_.restart_count;
    beginning.spent = file_.spent;
    beginning.bad_nodes = file_.bad_nodes;
    beginning.verdict = file_.verdict;
    beginning.is_remembered = file_.instance.is_known();
    if (beginning.is_remembered) beginning.instance = file_.instance;
  } else {
    file_ = Record{.instance = {}, .epoch = {}, .verdict = std::nullopt};
  }
  file_.epoch = beginning.epoch;
  for (auto& [name, node] : nodes_) node.is_connected = false;
  names_.clear();
  checker_.OnRestart(beginning.verdict.has_value());
  machine_ = std::make_unique<RendezvousMachine>(policy_, beginning, now_);
}

FakeNode& FakeJob::node(const std::string& name) {
  const auto [it, is_new] = nodes_.try_emplace(name);
  if (is_new) {
    NodeJoined& hello = it->second.hello;
    const std::string number = std::to_string(nodes_.size());
    hello.node.id = NodeId{name};
    hello.node.host = name;
    hello.node.local_world_size = 2;
    hello.node.store_port = static_cast<uint16_t>(5000 + nodes_.size());
    hello.policy = policy_;
    hello.source_addr = "10.0.0." + number;
    hello.accepted_addr = "10.0.0.100";
  }
  return it->second;
}

void FakeJob::Join(const std::string& name, bool is_running, bool is_new_session) {
  FakeNode& from = node(name);
  if (!from.is_connected || is_new_session) {
    from.session = SessionId{++sessions_};
    from.is_connected = true;
    names_[from.session] = name;
  }
  if (!is_running) from.has_workers = from.must_stop = false;
  if (is_running) from.joined = from.assignment.instance;
  NodeJoined event = from.hello;
  event.stamp = from.stamp();
  if (is_running) event.held = from.assignment;
  if (from.joined == from.assignment.instance && from.assignment.round != Round{}) {
    event.restart_count = from.assignment.restart_count;
    event.max_restarts = from.assignment.max_restarts;
  }
  Feed(event);
}

void FakeJob::Break(const std::string& name, bool is_by_peer) {
  FakeNode& from = node(name);
  from.is_connected = false;
  Feed(SessionBroken{from.session, is_by_peer});
}

void FakeJob::Leave(const std::string& name, const std::string& reason, bool is_by_signal) {
  FakeNode& from = node(name);
  Feed(NodeLeft{from.stamp(), reason, is_by_signal});
  from.is_connected = false;
  from.has_workers = false;
}

void FakeJob::Feed(const Event& event) {
  const std::vector<Action> actions = machine_->Step(now_, event);
  for (std::string& breach : checker_.AfterStep(*machine_, event, actions)) {
    broken_.push_back(breach + " after " + RenderEvent(event));
  }
  for (const Action& action : actions) {
    if (std::holds_alternative<Record>(action)) continue;
    said_.push_back({Prefix(action), action});
    Hear(action);
  }
  for (const Action& action : actions) {
    // The job's file goes with the job.
    if (std::holds_alternative<Finish>(action))
      file_ = Record{.instance = {}, .epoch = file_.epoch, .verdict = {}};
    const auto* record = std::get_if<Record>(&action);
    if (record == nullptr || is_disk_hanging_) continue;
    file_ = *record;
    if (record->verdict.has_value()) Feed(Recorded{});
  }
}

std::string FakeJob::Prefix(const Action& action) const {
  std::string prefix;
  if (is_passing_) {
    const auto at = std::chrono::duration_cast<std::chrono::milliseconds>(now_.time_since_epoch());
    prefix = "[" + std::to_string(at.count()) + "ms] ";
  }
  const std::optional<SessionId> target = TargetOf(action);
  if (!target.has_value()) return prefix;
  const auto name = names_.find(*target);
  return prefix + (name == names_.end() ? "?" : name->second) + ": ";
}

void FakeJob::Hear(const Action& action) {
  const std::optional<SessionId> target = TargetOf(action);
  if (!target.has_value()) return;
  const auto name = names_.find(*target);
  if (name == names_.end()) return;
  FakeNode& to = nodes_[name->second];
  if (to.session != *target) return;
  if (const auto* assign = std::get_if<Assign>(&action)) {
    to.assignment = assign->assignment;
    to.joined = assign->assignment.instance;
    to.first_rank = assign->assignment.first_rank;
    to.has_workers = true;
    to.must_stop = false;
  } else if (std::holds_alternative<TellWaiting>(action)) {
    to.joined = machine_->current().instance;
  } else if (std::holds_alternative<Drain>(action)) {
    to.must_stop = true;
  } else if (std::holds_alternative<Conclude>(action)) {
    to.is_concluded = true;
    to.has_workers = false;
  } else if (const auto* refuse = std::get_if<Refuse>(&action)) {
    to.is_refused = refuse->kind != Refusal::kOtherJob;
    to.is_connected = false;
    to.has_workers = false;
  } else if (std::holds_alternative<CloseSession>(action)) {
    to.is_connected = false;
  }
}

void FakeJob::Beat() {
  for (auto& [name, from] : nodes_) {
    if (from.is_connected && !from.is_silent) Feed(HeartbeatReceived{from.stamp()});
  }
}

void FakeJob::Pass(Duration duration) {
  is_passing_ = true;
  const TimePoint until = now_ + duration;
  next_beat_ = std::max(next_beat_, now_);
  while (true) {
    const TimePoint wake = std::min(machine_->NextDeadline().value_or(until), next_beat_);
    if (wake > until) break;
    now_ = std::max(now_, wake);
    if (now_ >= next_beat_) {
      next_beat_ = now_ + std::chrono::seconds(1);
      Beat();
    }
    Feed(TimePassed{});
    if (now_ >= until) break;
  }
  now_ = until;
  is_passing_ = false;
}

std::vector<std::string> FakeJob::TakeLines() {
  std::vector<std::string> lines;
  for (const Said& said : said_) lines.push_back(said.prefix + RenderAction(said.action));
  said_.clear();
  return lines;
}

std::vector<Action> FakeJob::TakeActions() {
  std::vector<Action> actions;
  for (Said& said : said_) actions.push_back(std::move(said.action));
  said_.clear();
  return actions;
}

}  // namespace ddprun::rendezvous::testing
