#include "tests/rendezvous/core/invariants.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/machine_state.h"

namespace ddprun::rendezvous {
namespace {

using Breaches = std::vector<std::string>;

// S1: the rank intervals are disjoint and cover exactly 0..world_size-1; node ranks likewise.
// `intervals`: by node rank, first rank and number of ranks.
void CheckBijection(const std::map<int, std::pair<int, int>>& intervals, int world_size,
                    Breaches& broken) {
  int next_rank = 0;
  int next_node = 0;
  for (const auto& [node_rank, interval] : intervals) {
    if (node_rank != next_node++) broken.push_back("S1: node ranks have a hole");
    if (interval.first != next_rank) broken.push_back("S1: ranks overlap or have a hole");
    next_rank = interval.first + interval.second;
  }
  if (next_rank != world_size) broken.push_back("S1: ranks do not add up to the world size");
}

void CheckSeats(const State& state, Breaches& broken) {
  const bool has_round = state.phase == Phase::kSealed || state.phase == Phase::kDraining;
  const int seats = static_cast<int>(state.seats.size());
  const bool is_missing_some = state.phase == Phase::kDraining && state.IsMissingSeats();
  const bool is_too_few = seats < NodesNeeded(state.policy) && !is_missing_some;
  if (has_round && (is_too_few || seats > state.policy.max_nodes)) {
    broken.push_back(absl::StrCat("S7: a round of ", seats, " nodes"));
  }
  std::set<int> node_ranks;
  bool have_all_succeeded = true;
  int ranks = 0;
  size_t succeeded = 0;
  bool has_success = false;
  for (const auto& [id, seat] : state.seats) {
    ranks += seat.local_world_size;
    succeeded += seat.succeeded_at.has_value() ? 1 : 0;
    has_success |= seat.succeeded_at.has_value() || seat.first_success.has_value();
    const Assignment& place = seat.assignment;
    if (place.instance != state.instance || place.epoch != state.epoch ||
        place.round != state.round) {
      broken.push_back(absl::StrCat("S3: node ", id.value, " has a seat of another round"));
    }
    if (!node_ranks.insert(seat.assignment.node_rank).second) {
      broken.push_back(absl::StrCat("S8: node rank ", seat.assignment.node_rank, " twice"));
    }
    have_all_succeeded &= seat.succeeded_at.has_value();
    const Member* member = state.members.Find(id);
    const bool is_running = state.phase == Phase::kSealed || state.phase == Phase::kReadopting;
    if (!is_running || seat.succeeded_at.has_value()) continue;
    if (member == nullptr) {
      broken.push_back(absl::StrCat("node ", id.value, " is gone and its round runs on"));
    } else if (member->standing != Standing::kRunning) {
      broken.push_back(absl::StrCat("node ", id.value, " has a seat and does not run"));
    }
  }
  if (ranks != state.seated_ranks || succeeded != state.succeeded_seats ||
      has_success != state.has_success || node_ranks.size() != state.seat_of_rank.size()) {
    broken.push_back("what was counted of the seats is not what they say");
  }
  if (state.phase == Phase::kReadopting && (seats == 0 || !state.IsMissingSeats())) {
    broken.push_back("a round whose nodes are all back is not taken up");
  }
  if (state.phase == Phase::kSealed && have_all_succeeded) {
    broken.push_back("S11: all succeeded and the job is not closed");
  }
}

void CheckMembers(const State& state, Breaches& broken) {
  size_t connected = 0;
  for (const auto& [id, member] : state.members.members()) {
    if (member.info.id != id) broken.push_back("S8: a node under another's id");
    if (member.standing == Standing::kRunning && state.phase != Phase::kClosed &&
        ((state.phase != Phase::kSealed && state.phase != Phase::kReadopting) ||
         !state.seats.contains(id))) {
      broken.push_back(absl::StrCat("node ", id.value, " runs without a seat"));
    }
    if (!member.is_connected) continue;
    ++connected;
    if (state.members.FindBySession(member.session) != &member) {
      broken.push_back(absl::StrCat("node ", id.value, " is not found by its session"));
    }
  }
  if (connected != state.members.session_count()) broken.push_back("S16: sessions of the gone");
  for (const NodeId& id : state.unacknowledged) {
    if (state.members.Find(id) == nullptr) broken.push_back("S16: waits for a node that is gone");
  }
}

// Nobody is told that a node is gone which is there.
void CheckGone(const State& state, Breaches& broken) {
  if (state.gone.size() > static_cast<size_t>(state.round_size.nodes)) {
    broken.push_back("more nodes are gone than the round had");
  }
  if (state.phase == Phase::kClosed) return;
  for (const auto& [id, why] : state.gone) {
    if (state.members.Find(id) == nullptr) continue;
    broken.push_back(absl::StrCat("node ", id.value, " is in the job, and: ", why));
  }
}

// P7: whatever is waited for, the next look at it is in sight, and never in the past.
void CheckDeadline(const State& state, Breaches& broken) {
  const std::optional<TimePoint> next = state.NextDeadline();
  if (next.has_value() && *next <= state.last_step) broken.push_back("P7: a deadline has passed");
  if (next.has_value() && state.is_finished) broken.push_back("P7: a deadline after the end");
  if (state.members.members().empty() || state.is_finished) return;
  if (!next.has_value() || *next > state.last_step + kTick) {
    broken.push_back("S15: no tick while there are members");
  }
}

// What the user has limited, beside the restarts.
void CheckSpent(const State& state, Breaches& broken) {
  const RestartsSpent& spent = state.spent;
  const RestartLimits& limits = state.policy.limits;
  if (!state.has_policy) return;
  const bool may_give_back = limits.budget_period > Duration{0};
  if (spent.given_back < 0 || spent.given_back > (may_give_back ? state.restart_count : 0)) {
    broken.push_back(absl::StrCat("S9: ", spent.given_back, " restarts given back"));
  }
  if (state.bad_nodes.count() > state.policy.bad_nodes.max_bad_nodes) {
    broken.push_back("S20: more bad nodes were taken out than are allowed");
  }
  if (state.phase == Phase::kClosed) return;
  if (limits.max_same_failure > 0 && spent.same_failures >= limits.max_same_failure) {
    broken.push_back("S9: it goes on after the same failure again");
  }
  if (spent.node_losses > limits.max_node_losses.value_or(0) ||
      spent.preemptions > limits.max_preemptions.value_or(0)) {
    broken.push_back("S9: it goes on after more losses than are allowed, or counts without limit");
  }
}

}  // namespace

Breaches CheckState(const RendezvousMachine& machine) {
  const State& state = MachineInspector::Look(machine);
  Breaches broken;
  CheckSeats(state, broken);
  CheckMembers(state, broken);
  CheckGone(state, broken);
  CheckDeadline(state, broken);
  // Before the first node has given the policy, the count comes from the job's file.
  const bool is_over_budget = state.has_policy && state.restart_count > state.MaxRestarts();
  if (state.restart_count < 0 || is_over_budget) {
    broken.push_back(absl::StrCat("S9: ", state.restart_count, " restarts"));
  }
  CheckSpent(state, broken);
  if (!state.is_instance_inherited && state.round_floor != state.round) {
    broken.push_back("S3: a round counts that no coordinator of this job gave out");
  }
  const bool has_end = state.verdict.has_value();
  if (has_end != (state.phase == Phase::kClosed)) broken.push_back("S10: closed without an end");
  if (state.is_finished && state.phase != Phase::kClosed) broken.push_back("S10: finished, open");
  if (state.phase == Phase::kOpen && !state.seats.empty())
    broken.push_back("seats of a round that is over");
  return broken;
}

Breaches InvariantChecker::AfterStep(const RendezvousMachine& machine, const Event& event,
                                     const std::vector<Action>& actions) {
  broken_ = CheckState(machine);
  const State& state = MachineInspector::Look(machine);
  Hear(event, state.last_step);
  NoteMembers(machine, event);
  std::erase_if(last_nodes_, [&](const NodeId& id) { return state.members.Find(id) == nullptr; });
  const bool was_over = is_over_;
  std::set<Stamped> sealed_now;
  for (const Action& action : actions) {
    if (is_finished_ && std::holds_alternative<Finish>(action)) Broken("finish given twice");
    if (const auto* told = std::get_if<TellSite>(&action)) {
      quarantine_[told->host] = state.last_step + policy_.bad_nodes.quarantine;
    }
    if (const auto* assign = std::get_if<Assign>(&action)) {
      OnAssign(*assign, sealed_now);
      CheckNotBad(machine, node_of_[assign->session]);
    }
    if (const auto* record = std::get_if<Record>(&action)) {
      is_recorded_ = is_recorded_ || record->verdict.has_value();
    }
    if (const auto* conclude = std::get_if<Conclude>(&action)) {
      CheckEnd(machine, event, *conclude);
      OnConclude(machine, *conclude);
    }
    if (std::holds_alternative<Drain>(action) && was_over) Broken("S10: a drain after the end");
    if (std::holds_alternative<Finish>(action)) is_finished_ = true;
    const auto* refuse = std::get_if<Refuse>(&action);
    if (refuse != nullptr && machine.verdict().has_value()) is_over_ = true;
  }
  if (!was_draining_ && state.phase == Phase::kDraining &&
      state.drain_cause == DrainCause::kArrival) {
    CheckArrival(machine);
  }
  // While a round drains, or where the time to join is over, the end may fall due with any event.
  const bool has_stalled = state.stall_ended == state.last_step;
  const Duration forgiven =
      has_stalled ? state.stall_ended - state.stall_began - kTick : Duration::zero();
  const bool is_due = was_draining_ ||
                      (join_deadline_.has_value() && *join_deadline_ + forgiven <= state.last_step);
  const bool may_go_on =
      (policy_.max_restarts > 0 || policy_.min_nodes < policy_.max_nodes) && !LimitsLosses();
  if (std::holds_alternative<NodeLeft>(event) && !was_over && !is_due && may_go_on &&
      machine.verdict().has_value() && machine.verdict()->exit_code != 0) {
    Broken("S13: a leave closed the job");
  }
  for (const Stamped& stamp : sealed_now) {
    CheckSealed(stamp);
    CheckSpares(machine, rounds_[stamp]);
  }
  CheckBudget(machine, event);
  was_draining_ = state.phase == Phase::kDraining;
  join_deadline_ = state.JoinDeadline();
  return std::exchange(broken_, {});
}

void InvariantChecker::Hear(const Event& event, TimePoint now) {
  if (const auto* joined = std::get_if<NodeJoined>(&event)) {
    node_of_[joined->stamp.session] = joined->node.id;
    NodeNotes& notes = nodes_[joined->node.id];
    notes.source_addr = joined->source_addr;
    notes.local_world_size = joined->node.local_world_size;
    notes.host = joined->node.host;
    notes.health = joined->node.health.health;
    notes.joined_with = joined->stamp.instance;
    if (!is_over_) known_[joined->node.id] = joined->node.cluster;
    if (!joined->held) notes.has_workers = false;
    if (!joined->held && !notes.came_at) notes.came_at = now;
  }
  if (const auto* checked = std::get_if<HealthChecked>(&event)) {
    const auto node = node_of_.find(checked->stamp.session);
    if (node != node_of_.end()) nodes_[node->second].health = checked->report.health;
  }
  if (const auto* done = std::get_if<WorkersSucceeded>(&event)) {
    const auto round = rounds_.find({done->stamp.instance, done->stamp.epoch, done->stamp.round});
    const auto node = node_of_.find(done->stamp.session);
    if (round != rounds_.end() && node != node_of_.end() &&
        round->second.by_node.contains(node->second)) {
      round->second.succeeded.insert(node->second);
      nodes_[node->second].stop_read = done->stop_read;
    }
  }
  const auto* stop = std::get_if<StopOrdered>(&event);
  if (stop != nullptr && stop->how != StopHow::kAfterStep &&
      node_of_.contains(stop->stamp.session)) {
    is_stop_ordered_ = true;
  }
  if (const auto* failed = std::get_if<WorkersFailed>(&event)) {
    reported_.push_back(failed->report);
  }
}

void InvariantChecker::OnAssign(const Assign& action, std::set<Stamped>& sealed_now) {
  const Assignment& to = action.assignment;
  const Stamped stamp{to.instance, to.epoch, to.round};
  if (!to.instance.is_known()) Broken("S2: an assignment of no job");
  if (is_over_) Broken("S10: an assignment after the end");
  // Epochs and rounds of two jobs say nothing of each other.
  const auto next_job = rounds_.upper_bound({to.instance, {UINT64_MAX}, {UINT64_MAX}});
  const auto newest = next_job == rounds_.begin() ? rounds_.end() : std::prev(next_job);
  const bool is_first = newest == rounds_.end() || std::get<0>(newest->first) != to.instance;
  if (!is_first && stamp < newest->first) Broken("S3: a round went back");
  if (is_first || stamp > newest->first) sealed_now.insert(stamp);
  const NodeId id = node_of_[action.session];
  RoundNotes& round = rounds_[stamp];
  NodeNotes& node = nodes_[id];
  const auto earlier = round.by_node.find(id);
  if (earlier != round.by_node.end() && !(earlier->second == to)) {
    Broken("S2: one node, one round, two assignments");
  }
  if (earlier == round.by_node.end() && !sealed_now.contains(stamp)) {
    Broken("S1: a node was added to a sealed round");
  }
  // S5: between two rounds of a node lies its word that no worker is left.
  if (node.has_workers && earlier == round.by_node.end()) {
    Broken(absl::StrCat("S5: node ", id.value, " still runs an earlier round"));
  }
  const bool is_same_job = std::get<0>(node.newest) == to.instance;
  if (is_same_job && stamp < node.newest) Broken("S3: a node is sent back");
  const bool is_elsewhere = !node.source_addr.empty() && !IsLoopback(node.source_addr);
  if (!policy_.is_static && is_elsewhere && IsLoopback(to.master_addr)) {
    Broken(absl::StrCat("node ", id.value, " of another host was given a loopback address"));
  }
  if (round.by_node.empty()) round.any = to;
  const Assignment& any = round.any;
  if (to.world_size != any.world_size || to.node_count != any.node_count ||
      to.master_addr != any.master_addr || to.master_port != any.master_port ||
      to.restart_count != any.restart_count || to.max_restarts != any.max_restarts) {
    Broken("S2: two nodes of a round were told different things");
  }
  node.has_workers = true;
  node.came_at.reset();
  node.paused_until = {};
  node.stop_read = StopRead::kNo;
  node.newest = stamp;
  round.by_node[id] = to;
}

// S21: a round is restarted for arrivals only by --scale-up, and not too often.
void InvariantChecker::CheckArrival(const RendezvousMachine& machine) {
  const State& state = MachineInspector::Look(machine);
  const TimePoint now = state.last_step;
  grown_.push_back(now);
  const size_t before = grown_.size() - 1;
  constexpr size_t kMost = 12;
  if (before >= kMost && now - grown_[before - kMost] < std::chrono::hours(1) &&
      policy_.scale_up == ScaleUp::kNow) {
    Broken("S21: arrivals have restarted the job more than twelve times within an hour");
  }
  if (policy_.scale_up == ScaleUp::kRestart) Broken("S21: a round ends for an arrival");
  const auto& members = state.members.members();
  if (policy_.scale_up == ScaleUp::kGraceful) {
    const bool has_read = std::ranges::any_of(state.seats, [&](const auto& entry) {
      return nodes_[entry.first].stop_read == StopRead::kToScaleUp;
    });
    if (!has_read) Broken("S21: a round ends for an arrival, and no worker was asked");
    return;
  }
  int count = 0;
  bool is_called = false;
  const Duration call = std::min<Duration>(policy_.last_call, std::chrono::seconds(5));
  for (const auto& [id, member] : members) {
    const NodeNotes& notes = nodes_[id];
    if (state.seats.contains(id) || member.standing != Standing::kWaiting) continue;
    if (notes.paused_until > now) continue;
    ++count;
    is_called = is_called || (notes.came_at && now - *notes.came_at >= call);
  }
  const bool is_full = static_cast<int>(state.seats.size()) + count >= policy_.max_nodes;
  if (!is_called && !is_full) Broken("S21: a round ends for an arrival before the call is over");
}

// Who has come beside a round, and which hosts have sent one that has left it since.
void InvariantChecker::NoteMembers(const RendezvousMachine& machine, const Event& event) {
  const State& state = MachineInspector::Look(machine);
  const TimePoint now = state.last_step;
  constexpr Duration kWindow = std::chrono::hours(1);
  for (auto& [id, notes] : nodes_) {
    const Member* member = state.members.Find(id);
    if (member != nullptr) continue;
    const bool was_seated = last_nodes_.contains(id);
    if (notes.is_member && was_seated && notes.arrived_at && now - *notes.arrived_at < kWindow) {
      flapped_[notes.host] = now;
    }
    notes.came_at.reset();
    notes.arrived_at.reset();
    notes.is_member = false;
  }
  if (const auto* joined = std::get_if<NodeJoined>(&event)) {
    NodeNotes& notes = nodes_[joined->node.id];
    const Member* member = state.members.Find(joined->node.id);
    const bool is_beside = member != nullptr && member->standing == Standing::kWaiting &&
                           state.phase == Phase::kSealed && had_round_;
    if (!notes.is_member && is_beside) {
      notes.arrived_at = now;
      const auto flapped = flapped_.find(notes.host);
      const bool has_flapped = flapped != flapped_.end() && now - flapped->second < kWindow;
      notes.paused_until = has_flapped ? now + std::chrono::seconds(30) : TimePoint{};
    }
    notes.is_member = member != nullptr;
  }
  had_round_ = state.round != Round{};
}

// S20: no node that is bad gets a place, nor any on a host that is in quarantine.
void InvariantChecker::CheckNotBad(const RendezvousMachine& machine, const NodeId& id) {
  const NodeNotes& node = nodes_[id];
  const bool refuses_unknown = policy_.bad_nodes.refuses_unknown;
  const auto known = quarantine_.find(node.host);
  if (node.health == Health::kBad || (node.health == Health::kUnknown && refuses_unknown)) {
    Broken(absl::StrCat("S20: node ", id.value, " is bad and gets a place"));
  }
  const State& state = MachineInspector::Look(machine);
  if (known != quarantine_.end() && state.last_step < known->second) {
    Broken(absl::StrCat("S20: host ", node.host, " is in quarantine and gets a place"));
  }
}

void InvariantChecker::CheckSealed(const Stamped& stamp) {
  const RoundNotes& round = rounds_[stamp];
  std::map<int, std::pair<int, int>> intervals;
  for (const auto& [id, assignment] : round.by_node) {
    intervals[assignment.node_rank] = {assignment.first_rank, nodes_[id].local_world_size};
  }
  CheckBijection(intervals, round.any.world_size, broken_);
  const int nodes = static_cast<int>(round.by_node.size());
  if (nodes != round.any.node_count) Broken("S2: not every node of the round was told");
  if (nodes < policy_.min_nodes || nodes > policy_.max_nodes) {
    Broken(absl::StrCat("S7: a round of ", nodes, " nodes"));
  }
}

// A spare takes the place of a node that is not there, and of no other.
void InvariantChecker::CheckSpares(const RendezvousMachine& machine, const RoundNotes& round) {
  const Membership& members = MachineInspector::Look(machine).members;
  const bool has_spare = std::ranges::any_of(round.by_node, [&](const auto& entry) {
    return !last_nodes_.contains(entry.first) && !members.Find(entry.first)->info.is_endpoint_node;
  });
  for (const NodeId& id : last_nodes_) {
    const Member& member = *members.Find(id);
    const bool is_ready = member.is_connected && member.standing == Standing::kWaiting;
    if (has_spare && is_ready) Broken(absl::StrCat("S7: a spare has the place of node ", id.value));
  }
  last_nodes_.clear();
  for (const auto& [id, assignment] : round.by_node) last_nodes_.insert(id);
}

void InvariantChecker::OnRestart(bool remembers_end) {
  node_of_.clear();
  quarantine_.clear();  // it may not have been recorded
  last_nodes_.clear();
  known_.clear();
  grown_.clear();
  flapped_.clear();
  had_round_ = false;
  for (auto& [id, notes] : nodes_) {
    notes.is_member = false;
    notes.arrived_at.reset();
    notes.paused_until = {};
  }
  is_finished_ = was_draining_ = false;
  join_deadline_.reset();
  restart_count_.reset();
  if (remembers_end) return;
  is_over_ = is_recorded_ = false;
  verdict_.reset();
}

void InvariantChecker::CheckEnd(const RendezvousMachine& machine, const Event& event,
                                const Conclude& action) {
  if (!is_recorded_) Broken("S10: a verdict is told that would not survive a crash");
  const auto* joined = std::get_if<NodeJoined>(&event);
  if (joined == nullptr || joined->stamp.session != action.session) return;
  const NodeInfo& node = joined->node;
  if (joined->stamp.instance == machine.current().instance || known_.contains(node.id)) return;
  if (!IsLateSpare(node.cluster)) {
    Broken(absl::StrCat("S10: node ", node.id.value, " is told the end of another job"));
  }
  known_[node.id] = node.cluster;
}

bool InvariantChecker::IsLateSpare(const ClusterPlace& place) const {
  bool is_same_step = false;
  for (const auto& [id, other] : known_) {
    if (other.step != place.step) continue;
    if (other.node == place.node) return false;
    is_same_step = true;
  }
  return is_same_step && !place.step.empty() && place.node >= 0;
}

void InvariantChecker::OnConclude(const RendezvousMachine& machine, const Conclude& action) {
  is_over_ = true;
  const Verdict& verdict = action.verdict;
  if (verdict_.has_value()) {
    if (!(*verdict_ == verdict)) Broken("S10: the verdict changed");
    return;
  }
  verdict_ = verdict;
  if (verdict.exit_code == 0) {
    const auto round = rounds_.find({machine.current().instance, action.epoch, action.round});
    if (round == rounds_.end() || round->second.succeeded.size() != round->second.by_node.size()) {
      Broken("S11: success without every rank's");
    }
    return;
  }
  const bool is_of_bad_node = verdict.exit_code == kBadNodeExitCode;
  if (is_of_bad_node && !verdict.first_failure && policy_.bad_nodes != BadNodeRules{}) return;
  if (!verdict.first_failure.has_value() && verdict.exit_code == kStoppedExitCode) {
    if (!is_stop_ordered_) Broken("S12: a stop that nobody ordered");
    return;
  }
  if (!verdict.first_failure.has_value()) {
    const bool is_started_once =
        policy_.max_restarts == 0 && (policy_.is_static || policy_.min_nodes == policy_.max_nodes);
    if (verdict.exit_code != kRendezvousExitCode || (!is_started_once && !LimitsLosses())) {
      Broken("S12: a failure without a cause");
    }
    return;
  }
  const bool was_reported =
      std::find(reported_.begin(), reported_.end(), *verdict.first_failure) != reported_.end();
  if (!was_reported) Broken("S12: a first cause that nobody reported");
}

void InvariantChecker::CheckBudget(const RendezvousMachine& machine, const Event& event) {
  const int now = MachineInspector::Look(machine).restart_count;
  const auto* joined = std::get_if<NodeJoined>(&event);
  const int held = joined != nullptr && joined->held ? joined->held->restart_count : 0;
  const int told = joined != nullptr ? std::max(joined->restart_count, held) : 0;
  const int before = restart_count_.value_or(now);
  if (now < before || now > std::max(before + 1, told)) {
    Broken("S9: the budget jumped");
  }
  const int failures = static_cast<int>(reported_.size());
  // What a node tells of an older coordinator's round may be a lie that nobody here can know of.
  if (now > before && now <= told) invented_ = std::max(invented_, now - failures);
  if (now > failures + invented_) Broken("S9: charged without a failure");
  restart_count_ = now;
}

}  // namespace ddprun::rendezvous
