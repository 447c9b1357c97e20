#include "tests/sim/fake_job.h"

#include <algorithm>
#include <utility>

#include "rendezvous/core/render.h"

namespace ddprun::rendezvous::testing {

FakeJob::FakeJob(const Policy& policy, const Beginning& beginning)
    : policy_(policy), machine_(policy, beginning, TimePoint{}), checker_(policy) {}

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
  NodeJoined event = from.hello;
  event.stamp = from.stamp();
  if (is_running) event.held = from.assignment;
  Feed(event);
}

void FakeJob::Break(const std::string& name) {
  FakeNode& from = node(name);
  from.is_connected = false;
  Feed(SessionBroken{from.session});
}

void FakeJob::Leave(const std::string& name, const std::string& reason) {
  FakeNode& from = node(name);
  Feed(NodeLeft{from.stamp(), reason});
  from.is_connected = false;
  from.has_workers = false;
}

void FakeJob::Feed(const Event& event) {
  const std::vector<Action> actions = machine_.Step(now_, event);
  for (std::string& breach : checker_.AfterStep(machine_, event, actions)) {
    broken_.push_back(breach + " after " + RenderEvent(event));
  }
  for (const Action& action : actions) {
    if (std::holds_alternative<Record>(action)) continue;
    said_.push_back({Prefix(action), action});
    Hear(action);
  }
  for (const Action& action : actions) {
    const auto* record = std::get_if<Record>(&action);
    if (record != nullptr && record->verdict.has_value()) Feed(Recorded{});
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
    to.first_rank = assign->assignment.first_rank;
    to.has_workers = true;
    to.must_stop = false;
  } else if (std::holds_alternative<Drain>(action)) {
    to.must_stop = true;
  } else if (std::holds_alternative<Conclude>(action)) {
    to.is_concluded = true;
    to.has_workers = false;
  } else if (std::holds_alternative<Refuse>(action)) {
    to.is_refused = true;
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
    const TimePoint wake = std::min(machine_.NextDeadline().value_or(until), next_beat_);
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
