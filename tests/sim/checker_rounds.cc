// Rounds: who is in them, when they may be stopped, who may be called lost.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/sim/checker.h"

namespace ddprun::sim {
namespace {

using std::chrono::seconds;

constexpr Duration kReturnAfterClose = seconds(2);

std::string NameOf(const RoundKey& key) {
  return absl::StrCat("round ", key.epoch.value, ".", key.round.value);
}

}  // namespace

void Checker::HearEvent(int life, TimePoint local, const rendezvous::Event& event) {
  CoordinatorNotes& notes = coordinators_[life];
  if (const auto* joined = std::get_if<rendezvous::NodeJoined>(&event)) {
    const AgentKey key = KeyOf(joined->node.id);
    notes.sessions[joined->stamp.session] = key;
    // An old session's join that comes late does not make it the newest.
    notes.newest[key] = std::max(notes.newest[key], joined->stamp.session);
    const auto closed = notes.closed.find(key);
    if (closed != notes.closed.end()) {
      if (local - std::max(closed->second, notes.amnesty) >= kReturnAfterClose) {
        notes.back_late.insert(scenario_.is_one_host ? 0 : key.node);
      }
      notes.closed.erase(closed);
    }
    notes.health[key] = joined->node.health.health;
    if (!joined->held) {
      notes.came.try_emplace(key, local);
      for (auto& [round_key, round] : rounds_) {
        if (!round.members.contains(key)) round.has_arrival = true;
      }
    } else {
      const auto round = rounds_.find(KeyOf(*joined->held));
      if (round != rounds_.end() && round->second.life != life && !round->second.is_stopping) {
        ++tally_.readopted;
        round->second.life = life;
      }
    }
  }
  if (const auto* checked = std::get_if<rendezvous::HealthChecked>(&event)) {
    const auto at = notes.sessions.find(checked->stamp.session);
    if (at != notes.sessions.end()) notes.health[at->second] = checked->report.health;
  }
  const auto* broken = std::get_if<rendezvous::SessionBroken>(&event);
  if (broken != nullptr && broken->is_by_peer && notes.sessions.contains(broken->session)) {
    notes.closed[notes.sessions[broken->session]] = local;
  }
  const Duration patience = scenario_.policy.evict_after;
  std::visit(
      [&](const auto& any) {
        if constexpr (requires { any.stamp; }) {
          const auto at = notes.sessions.find(any.stamp.session);
          if (at == notes.sessions.end()) return;
          const auto [heard, is_first] = notes.heard.try_emplace(at->second, local);
          if (!is_first && local - std::max(heard->second, notes.amnesty) >= patience) {
            notes.back_late.insert(scenario_.is_one_host ? 0 : at->second.node);
          }
          heard->second = local;
          notes.heard_after[at->second] = notes.uncounted;
        }
      },
      event);
  if (const auto* failed = std::get_if<rendezvous::WorkersFailed>(&event)) {
    const auto at = notes.sessions.find(failed->stamp.session);
    if (at == notes.sessions.end()) return;
    const RoundKey key{failed->stamp.instance, failed->stamp.epoch, failed->stamp.round};
    const auto round = rounds_.find(key);
    if (round == rounds_.end()) return;
    const SimClock& own = notes.host < 0 ? scenario_.coordinator_clock
                                         : scenario_.nodes[static_cast<size_t>(notes.host)].clock;
    const SimClock& its = scenario_.nodes[static_cast<size_t>(at->second.node)].clock;
    round->second.told.push_back(
        {at->second, failed->report, life, local, local - failed->age, own.Blur(its, failed->age)});
  }
}

void Checker::CheckNotBad(int life, AgentKey key) {
  const CoordinatorNotes& notes = coordinators_[life];
  const rendezvous::Health health = notes.health.at(key);
  const bool is_refused =
      health == rendezvous::Health::kUnknown && scenario_.policy.bad_nodes.refuses_unknown;
  if (health == rendezvous::Health::kBad || is_refused) {
    Broken("S20: " + ::ddprun::sim::NameOf(key) + " is bad and gets a place");
  }
  const auto known = notes.quarantine.find(HostOf(scenario_, key.node));
  if (known != notes.quarantine.end() && notes.last_step < known->second) {
    Broken("S20: " + ::ddprun::sim::NameOf(key) + " gets a place, and its host is in quarantine");
  }
}

void Checker::OnAssign(int life, const rendezvous::Assign& action, std::set<RoundKey>& sealed) {
  const rendezvous::Assignment& to = action.assignment;
  const RoundKey key = KeyOf(to);
  CoordinatorNotes& notes = coordinators_[life];
  const auto session = notes.sessions.find(action.session);
  if (session == notes.sessions.end()) return Broken("an assignment to nobody");
  const AgentKey agent = session->second;
  CheckNotBad(life, agent);
  const auto known = rounds_.find(key);
  if (known == rounds_.end()) {
    const auto last = last_sealed_.find(key.instance);
    if (last != last_sealed_.end() && key < last->second) {
      Broken(absl::StrCat("S3: ", NameOf(key), " is sealed after ", NameOf(last->second)));
    }
    const bool may_go_on = IsForgotten(key.instance) || IsUnkept(key.instance);
    if (verdicts_.contains(key.instance) && !may_go_on) {
      Broken("S10: " + NameOf(key) + " is sealed after the verdict");
    }
    sealed.insert(key);
  }
  const std::optional<TimePoint> ordered_at = agents_[agent].ordered_at;
  const Duration patience = scenario_.policy.evict_after + seconds(20);
  if (ordered_at && timeline_.now() - *ordered_at > seconds(5) && !HadTrouble(-1, patience) &&
      !HadTrouble(agent.node, patience) && !IsForgotten(key.instance)) {
    Broken(absl::StrCat("P7: ", ::ddprun::sim::NameOf(agent), " is in ", NameOf(key),
                        ", and its user has stopped the job"));
  }
  RoundNotes& round = rounds_[key];
  if (round.members.empty()) {
    round.any = to;
    round.sealed_at = timeline_.now();
    round.sealed_by = round.life = life;
  }
  const auto earlier = round.members.find(agent);
  if (earlier == round.members.end() && !sealed.contains(key)) {
    Broken(absl::StrCat("S1: ", ::ddprun::sim::NameOf(agent), " was added to ", NameOf(key)));
  }
  if (earlier != round.members.end() && !(earlier->second == to)) {
    Broken(absl::StrCat("S2: ", ::ddprun::sim::NameOf(agent), " has two places in ", NameOf(key)));
  }
  const rendezvous::Assignment& any = round.any;
  if (to.world_size != any.world_size || to.node_count != any.node_count ||
      to.master_addr != any.master_addr || to.master_port != any.master_port ||
      to.restart_count != any.restart_count || to.max_restarts != any.max_restarts) {
    Broken("S2: two nodes of " + NameOf(key) + " were told different things");
  }
  round.members[agent] = to;
  notes.came.erase(agent);
}

std::vector<AgentKey> Checker::Waiting(const CoordinatorNotes& notes,
                                       const RoundNotes& round) const {
  // Longer than it may lag, and a node be silent.
  constexpr Duration kLongKnown = seconds(120);
  std::vector<AgentKey> waiting;
  for (const auto& [key, came] : notes.came) {
    const std::optional<TimePoint> gone_at = agents_.at(key).gone_at;
    if (round.members.contains(key)) continue;
    if (!gone_at || timeline_.now() - *gone_at < kLongKnown) waiting.push_back(key);
  }
  return waiting;
}

// S21: what --scale-up says, and no more often.
void Checker::CheckArrival(int life, TimePoint local, const RoundNotes& round) {
  CoordinatorNotes& notes = coordinators_[life];
  const rendezvous::Policy& policy = scenario_.policy;
  ++tally_.arrivals;
  notes.grown.push_back(local);
  const auto in_hour = std::ranges::count_if(
      notes.grown, [local](TimePoint at) { return local - at < std::chrono::hours(1); });
  using rendezvous::ScaleUp;
  if (in_hour > 12 && policy.scale_up == ScaleUp::kNow) {
    Broken("S21: more than 12 restarts for arrivals within an hour");
  }
  if (policy.scale_up == ScaleUp::kRestart) Broken("S21: a round ends for an arrival");
  if (policy.scale_up == ScaleUp::kGraceful) {
    if (round.has_made_room) ++tally_.made_room;
    if (static_cast<int>(round.succeeded.size()) < round.any.world_size) {
      Broken("S21: a round ends for an arrival before its workers have");
    }
    return;
  }
  const std::vector<AgentKey> waiting = Waiting(notes, round);
  const Duration call = std::min<Duration>(policy.last_call, seconds(5));
  const bool is_called = std::ranges::any_of(
      waiting, [&](AgentKey key) { return local - notes.came.at(key) >= call; });
  const bool is_full = static_cast<int>(round.members.size() + waiting.size()) >= policy.max_nodes;
  if (!is_called && !is_full) Broken("S21: a round ends for an arrival before the call is over");
}

void Checker::CheckSealed(const RoundKey& key) {
  const RoundNotes& round = rounds_[key];
  ++tally_.rounds;
  CoordinatorNotes& notes = coordinators_[round.life];
  notes.last_round = notes.last_step;
  notes.back_late.clear();
  std::map<int, std::pair<int, int>> intervals;  // by node rank: first rank, ranks
  for (const auto& [agent, assignment] : round.members) {
    const int ranks = scenario_.nodes[static_cast<size_t>(agent.node)].local_world_size;
    if (!intervals.try_emplace(assignment.node_rank, assignment.first_rank, ranks).second) {
      Broken(absl::StrCat("S1: node rank ", assignment.node_rank, " twice in ", NameOf(key)));
    }
  }
  int next_node = 0;
  int next_rank = 0;
  for (const auto& [node_rank, interval] : intervals) {
    if (node_rank != next_node++ || interval.first != next_rank) {
      Broken("S1: the ranks of " + NameOf(key) + " overlap or have a hole");
    }
    next_rank = interval.first + interval.second;
  }
  if (next_rank != round.any.world_size) {
    Broken(absl::StrCat("S1: ", NameOf(key), " has ", next_rank, " ranks and says ",
                        round.any.world_size));
  }
  const int nodes = static_cast<int>(round.members.size());
  const rendezvous::Policy& policy = scenario_.policy;
  const int least = policy.is_static ? policy.max_nodes : policy.min_nodes;
  if (nodes < least || nodes > policy.max_nodes || nodes != round.any.node_count) {
    Broken(absl::StrCat("S7: ", NameOf(key), " has ", nodes, " nodes"));
  }
  CheckCharge(key);
  last_sealed_[key.instance] = key;
}

void Checker::CheckCharge(const RoundKey& key) {
  const RoundNotes& round = rounds_[key];
  const int now = round.any.restart_count;
  const int given_back = round.any.max_restarts - scenario_.policy.max_restarts;
  if (now > round.any.max_restarts || given_back < 0) {
    Broken(absl::StrCat("S9: restart ", now, " of ", round.any.max_restarts));
  }
  CheckGivenBack(key, given_back);
  const auto last_key = last_sealed_.find(key.instance);
  if (last_key == last_sealed_.end()) return;
  const RoundNotes& last = rounds_[last_key->second];
  int before = last.any.restart_count;
  if (scenario_.is_elected) {
    // The last may be a round that a leader began who could not know of the one before, whose nodes
    // were cut off and are back.
    for (const auto& [other, any] : rounds_) {
      if (other.instance == key.instance && other != key) {
        before = std::max(before, any.any.restart_count);
      }
    }
  }
  // What was charged a moment before all died that knew of it may not be written yet.
  const bool is_unwritten =
      std::all_of(last.members.begin(), last.members.end(), [&](const auto& member) {
        const AgentNotes& agent = agents_.at(member.first);
        return agent.died_at && *agent.died_at >= last.sealed_at &&
               *agent.died_at - last.sealed_at < seconds(1);
      });
  // With etcd, what it was told of it holds.
  const auto kept = kept_restarts_.find(key.instance);
  const bool may_fall =
      scenario_.is_elected ? kept == kept_restarts_.end() || now >= kept->second : is_unwritten;
  if (now < before && !IsForgotten(key.instance) && !may_fall) {
    Broken("S9: the restart count fell");
  }
  if (now > before + 1) Broken("S9: the restart count jumped");
  if (now <= before) return;
  ++tally_.restarts;
  CheckBackoff(round, last);
  // A coordinator that was started again may hear first of a round before the last, whose nodes are
  // yet to come: that one's failure is charged.
  const bool is_told = !last.told.empty() || std::ranges::any_of(rounds_, [&](const auto& any) {
    return any.first.instance == key.instance &&
           std::ranges::any_of(any.second.told, [&](const Told& told) {
             // With etcd the one before may have charged it, and lost its place since.
             return told.life == round.sealed_by || scenario_.is_elected;
           });
  });
  if (!is_told && !IsForgotten(key.instance)) {
    Broken("S9: a restart was charged and nobody told of a failure");
  }
  const bool has_own = std::any_of(last.failed.begin(), last.failed.end(), [](const auto& failure) {
    return failure.second == EndCause::kOwn;
  });
  // A coordinator that waits for its lease hears what waited meanwhile at once.
  const bool is_quiet = !scenario_.is_elected && scenario_.spike == Duration{0} &&
                        scenario_.max_delay <= std::chrono::milliseconds(5) &&
                        std::none_of(troubles_.begin(), troubles_.end(), [](const Trouble& t) {
                          return t.to > t.from || t.kind == FaultKind::kHalfBreak;
                        });
  // What failed had lost a node, and nothing kept the coordinator from seeing that.
  if (!has_own && !last.left_early && last.lost_agent && is_quiet) {
    Broken("S9: the loss of a node was charged");
  }
}

// The restarts that were given back are those up to some charge, after so long without another.
void Checker::CheckGivenBack(const RoundKey& key, int given_back) {
  if (given_back == 0) return;
  tally_.given_back = std::max(tally_.given_back, given_back);
  std::optional<TimePoint> begun;
  std::optional<TimePoint> charged;
  for (const auto& [other, round] : rounds_) {
    if (other.instance != key.instance) continue;
    if (round.any.restart_count == given_back && !begun) begun = round.sealed_at;
    if (round.any.restart_count > given_back && !charged) charged = round.sealed_at;
  }
  const Duration period = scenario_.policy.limits.budget_period;
  // A clock may go faster than the others.
  const bool was_long = begun && charged.value_or(timeline_.now()) - *begun >= period * 99 / 100;
  if (period == Duration{0} || (!was_long && !IsForgotten(key.instance))) {
    Broken(absl::StrCat("S9: ", given_back, " restarts were given back too early"));
  }
}

// The second restart in a row waits, the third twice as long; the first never does, which P7 and
// healthy see.
void Checker::CheckBackoff(const RoundNotes& round, const RoundNotes& last) {
  const Duration backoff = scenario_.policy.limits.backoff;
  const int restart = round.any.restart_count;
  if (backoff == Duration{0} || restart < 2 || coordinators_.size() > 1 || last.told.empty()) {
    return;
  }
  TimePoint told = last.told.front().receipt;
  for (const Told& any : last.told) told = std::min(told, any.receipt);
  const Duration waited = coordinators_[round.life].last_step - told;
  if (waited < backoff * (1 << (restart - 2))) {
    Broken(absl::StrCat("S9: restart ", restart, " did not wait"));
  }
}

void Checker::OnStop(const RoundKey& key, const std::string& how) {
  RoundNotes& round = rounds_[key];
  if (std::exchange(round.is_stopping, true)) return;
  if (!WhyMayStop(round).empty() || verdicts_.contains(key.instance)) return;
  Broken(absl::StrCat("healthy: nothing was wrong with ", NameOf(key), ", and ", how));
}

std::string Checker::WhyMayStop(const RoundNotes& round) const {
  if (!round.failed.empty()) return "a worker failed";
  if (round.lost_agent) return "an agent went";
  if (round.has_bad_node) return "a node is bad";
  // Where an assignment was lost with the coordinator that made it, nobody holds that place.
  const bool has_begun = round.started.size() == round.members.size();
  if (!has_begun && round.sealed_by != coordinators_.rbegin()->first) return "it never began";
  const bool has_room = static_cast<int>(round.members.size()) < scenario_.policy.max_nodes;
  // One that came before may have had to wait.
  const bool has_waiting = !Waiting(coordinators_.at(round.life), round).empty();
  if ((round.has_arrival || has_waiting) && has_room) return "a node came";
  const Duration window = scenario_.policy.evict_after + seconds(20);
  // A coordinator in an agent goes with it, whether that has a place in the round or not.
  const int host = coordinators_.at(round.sealed_by).host;
  // With etcd another one takes its place, unless it still leads and hears nobody but its own node:
  // it cannot know who is cut off, and goes on without the others.
  for (const auto& [life, notes] : coordinators_) {
    if (scenario_.is_elected && WasCut(notes.host, window)) return "a coordinator was cut off";
  }
  if (host >= 0 && !scenario_.is_elected && HadTrouble(host, window)) {
    return "the coordinator's node had trouble";
  }
  for (const auto& [agent, assignment] : round.members) {
    if (HadTrouble(agent.node, window)) return "a node had trouble";
    const auto notes = agents_.find(agent);
    // It may have died before the round was sealed, of which nobody had heard yet.
    if (notes != agents_.end() && notes->second.is_dead) return "an agent went";
    const std::optional<TimePoint> lost =
        notes == agents_.end() ? std::nullopt : notes->second.lost_since;
    const Duration patience =
        std::min(scenario_.agent.orphan_timeout, scenario_.agent.exit_barrier_timeout);
    if (lost && timeline_.now() - *lost >= patience * 98 / 100) {
      return "the coordinator was away for too long";
    }
  }
  return "";
}

bool Checker::WasSilentForLong(const CoordinatorNotes& notes, TimePoint local, AgentKey key) const {
  const auto heard = notes.heard.find(key);
  if (heard == notes.heard.end()) return false;
  const Duration uncounted = notes.uncounted - notes.heard_after.at(key);
  const Duration return_time = std::max(scenario_.policy.evict_after, Duration(seconds(8)));
  return local - heard->second - uncounted >= 3 * return_time;
}

void Checker::CheckEviction(int life, TimePoint local, AgentKey key) {
  const CoordinatorNotes& notes = coordinators_[life];
  const auto heard = notes.heard.find(key);
  const TimePoint since =
      std::max(notes.amnesty, heard == notes.heard.end() ? notes.started : heard->second);
  if (local - since < scenario_.policy.evict_after && !WasSilentForLong(notes, local, key)) {
    Broken(
        absl::StrCat("S15: ", ::ddprun::sim::NameOf(key), " was evicted after ",
                     std::chrono::duration_cast<std::chrono::milliseconds>(local - since).count(),
                     " ms in which it could be heard and was not"));
  }
}

void Checker::CheckMajority(int life, TimePoint local, const std::set<AgentKey>& before,
                            const std::set<AgentKey>& after) {
  const CoordinatorNotes& notes = coordinators_[life];
  const bool are_all_silent = std::ranges::all_of(before, [&](const AgentKey& key) {
    const auto heard = notes.heard.find(key);
    const TimePoint since =
        std::max(notes.amnesty, heard == notes.heard.end() ? notes.started : heard->second);
    return local - since > scenario_.policy.evict_after * 3 / 4;
  });
  if (before.size() < 2 || !are_all_silent) return;
  for (const AgentKey& key : before) {
    if (after.contains(key)) continue;
    return Broken(absl::StrCat("S19: ", ::ddprun::sim::NameOf(key),
                               " was evicted by a leader that hears no other machine"));
  }
}

void Checker::CheckLostText(int life, TimePoint local, const std::string& text) {
  const bool is_closed = absl::StrContains(text, " is lost: its connection closed");
  if (!is_closed && !absl::StrContains(text, " is lost: silent for")) return;
  ++tally_.losses;
  const int node = std::atoi(text.c_str() + text.find("node n") + 6);
  const CoordinatorNotes& notes = coordinators_[life];
  // It may have been lost without a word, as nobody was there to be told, and come back.
  if (notes.back_late.contains(scenario_.is_one_host ? 0 : node)) return;
  // One of its lives has been silent, or closed and away, for long enough.
  const Duration patience = is_closed ? kReturnAfterClose : scenario_.policy.evict_after;
  const std::map<AgentKey, TimePoint>& last = is_closed ? notes.closed : notes.heard;
  // On one host any of them; else that node's, which stand side by side.
  auto at = scenario_.is_one_host ? last.begin() : last.lower_bound({node, 0});
  for (; at != last.end() && (at->first.node == node || scenario_.is_one_host); ++at) {
    if (local - std::max(at->second, notes.amnesty) >= patience) return;
    if (!is_closed && WasSilentForLong(notes, local, at->first)) return;
  }
  Broken(absl::StrCat("S15: it was not ", is_closed ? "away" : "silent", " for so long: ", text));
}

}  // namespace ddprun::sim
