// Who does what: agents, workers, coordinators, faults.
#include "tests/sim/checker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/rendezvous/core/invariants.h"

namespace ddprun::sim {
namespace {

// More nodes than a seed draws, or than --nodes takes.
constexpr size_t kCrowd = 65;

// "node b joined", "2 nodes joined: b, c", "nodes joined".
bool IsOfArrival(const std::string& reason) {
  return reason.ends_with(" joined") || reason.find(" nodes joined: ") != std::string::npos;
}

}  // namespace

void Tally::Add(const Tally& other) {
  rounds += other.rounds;
  successes += other.successes;
  failures += other.failures;
  given_up += other.given_up;
  losses += other.losses;
  coordinator_starts += other.coordinator_starts;
  readopted += other.readopted;
  restarts += other.restarts;
  stops += other.stops;
  given_back += other.given_back;
  limited += other.limited;
  bad_nodes += other.bad_nodes;
  arrivals += other.arrivals;
  made_room += other.made_room;
  takeovers += other.takeovers;
}

void Checker::Broken(const std::string& what) {
  // What follows from a breach is of no interest, and may be endless.
  if (breaches_.size() < 8) breaches_.push_back(what);
}

void Checker::OnFault(const Fault& fault) {
  if (fault.kind == FaultKind::kOrderStop) return;  // no trouble: only the end that it asks for
  const bool is_lasting =
      fault.kind == FaultKind::kPauseAgent || fault.kind == FaultKind::kCutNode ||
      fault.kind == FaultKind::kRefuse || fault.kind == FaultKind::kCutUp ||
      fault.kind == FaultKind::kCutDown || fault.kind == FaultKind::kCutCoordinator ||
      fault.kind == FaultKind::kPauseCoordinator || fault.kind == FaultKind::kKillCoordinator ||
      fault.kind == FaultKind::kLoseFile;
  const bool is_coordinators =
      fault.kind == FaultKind::kCutCoordinator || fault.kind == FaultKind::kPauseCoordinator ||
      fault.kind == FaultKind::kKillCoordinator || fault.kind == FaultKind::kLoseFile;
  // A coordinator that lags is no reason to stop any round.
  const bool is_etcds = fault.kind == FaultKind::kSilentEtcd ||
                        fault.kind == FaultKind::kSlowEtcd ||
                        fault.kind == FaultKind::kLagCoordinator;
  if (is_etcds || fault.kind == FaultKind::kCutFromEtcd) {
    // No round's: it goes on without a coordinator.
    const TimePoint now = timeline_.now();
    troubles_.push_back({-1, fault.kind, now, now + fault.duration});
    if (!is_etcds) troubles_.push_back({fault.node, fault.kind, now, now + fault.duration});
    return;
  }
  const Duration lasts = is_lasting ? fault.duration : Duration{0};
  const TimePoint now = timeline_.now();
  if (!is_coordinators) troubles_.push_back({fault.node, fault.kind, now, now + lasts});
  if (fault.kind == FaultKind::kRefuse) {
    const int next = (fault.node + 1) % static_cast<int>(scenario_.nodes.size());
    troubles_.push_back({next, fault.kind, now, now + lasts});
  }
  // Its node is cut off with it.
  if (is_coordinators && !scenario_.is_apart) {
    troubles_.push_back({0, fault.kind, now, now + lasts});
  }
  const bool hits_host = scenario_.is_elected || (!scenario_.is_apart && fault.node == 0);
  if (is_coordinators || hits_host) troubles_.push_back({-1, fault.kind, now, now + lasts});
}

bool Checker::HadTrouble(int node, Duration window) const {
  const TimePoint since = timeline_.now() - window;
  return std::any_of(troubles_.begin(), troubles_.end(), [&](const Trouble& trouble) {
    // Who cannot ask etcd is lost to a new leader, and to no other.
    const bool is_none = trouble.kind == FaultKind::kCutFromEtcd && trouble.node >= 0 &&
                         std::ranges::none_of(led_since_, [&](TimePoint at) {
                           const bool may_look = at > trouble.from - scenario_.policy.evict_after;
                           return may_look && at <= trouble.to;
                         });
    return trouble.node == node && trouble.to >= since && !is_none;
  });
}

bool Checker::WasCut(int node, Duration window) const {
  const TimePoint since = timeline_.now() - window;
  return std::any_of(troubles_.begin(), troubles_.end(), [&](const Trouble& trouble) {
    const bool is_cut = trouble.kind == FaultKind::kCutNode || trouble.kind == FaultKind::kCutUp ||
                        trouble.kind == FaultKind::kCutDown;
    return is_cut && trouble.node == node && trouble.to >= since;
  });
}

void Checker::OnCoordinatorStarted(int life, int host, bool has_memory) {
  ++tally_.coordinator_starts;
  if (scenario_.is_elected && !found_record_) {
    for (const auto& [instance, round] : last_sealed_) forgotten_.insert(instance);
    for (const auto& [instance, verdict] : verdicts_) lost_verdicts_.insert(instance);
  } else if (life > 0 && !has_memory && !scenario_.is_elected) {
    has_forgotten_ = true;
    for (const auto& [instance, verdict] : verdicts_) lost_verdicts_.insert(instance);
  }
  coordinators_[life] = {};
  coordinators_[life].host = host;
}

void Checker::OnPlaceTaken(AgentKey by, bool has_record, bool is_stolen) {
  if (is_stolen && ++agents_[by].stolen_places > 1) {
    Broken(
        absl::StrCat("S18: ", NameOf(by), " takes the lead from living leaders again and again"));
  }
  if (!led_since_.empty()) ++tally_.takeovers;
  led_since_.push_back(timeline_.now());
  found_record_ = has_record;
  troubles_.push_back({-1, FaultKind::kKillCoordinator, timeline_.now(), timeline_.now()});
}

void Checker::OnRecordKept(int life, const rendezvous::Record& record) {
  int& kept = kept_restarts_[record.instance];
  kept = std::max(kept, record.restart_count);
  if (!record.verdict) return;
  kept_verdicts_.try_emplace(record.instance, *record.verdict);
  OnVerdictDurable(life);
}

void Checker::OnAgentStarted(AgentKey key) { agents_[key] = {}; }

void Checker::OnAgentKilled(AgentKey key) {
  AgentNotes& agent = agents_[key];
  agent.is_dead = true;
  agent.died_at = agent.gone_at = timeline_.now();
  for (auto& [round_key, round] : rounds_) {
    if (round.members.contains(key)) round.lost_agent = true;
  }
}

void Checker::OnAgentHeard(AgentKey key, const rendezvous::RendezvousEvent& event) {
  AgentNotes& agent = agents_[key];
  if (agent.is_dead) Broken(NameOf(key) + " hears although it is dead");
  if (const auto* concluded = std::get_if<rendezvous::Concluded>(&event)) {
    agent.verdict = concluded->verdict;
  } else if (const auto* made = std::get_if<rendezvous::ContactMade>(&event)) {
    if (!made->is_hosted_here) agent.stolen_places = 0;
  } else if (std::holds_alternative<rendezvous::ContactLost>(event)) {
    if (!agent.lost_since) agent.lost_since = timeline_.now();
  } else if (std::holds_alternative<rendezvous::ContactRestored>(event)) {
    agent.lost_since.reset();
  }
}

void Checker::OnAgentDid(AgentKey key, const launcher::AgentAction& action) {
  AgentNotes& agent = agents_[key];
  if (std::holds_alternative<launcher::LeaveJob>(action)) {
    // By a signal, or because something of its machine failed.
    agent.was_signalled = true;
    for (auto& [round_key, round] : rounds_) {
      if (round.members.contains(key)) round.lost_agent = true;
    }
  }
  const auto* order = std::get_if<launcher::OrderStop>(&action);
  if (order != nullptr && order->how == rendezvous::StopHow::kAfterStep) is_end_wanted_ = true;
  if (order != nullptr && order->how != rendezvous::StopHow::kAfterStep)
    agent.ordered_at = timeline_.now();
  if (std::holds_alternative<launcher::StopWorkers>(action) && agent.round && !agent.verdict) {
    OnStop(*agent.round, NameOf(key) + " stops its workers");
  }
  if (std::holds_alternative<launcher::JoinRound>(action) && !agent.living.empty()) {
    Broken(absl::StrCat("S5: ", NameOf(key), " joins while workers live"));
  }
}

void Checker::OnAgentEnded(AgentKey key, int exit_code) {
  AgentNotes& agent = agents_[key];
  agent.is_dead = true;
  agent.exit_code = exit_code;
  agent.gone_at = timeline_.now();
  if (!agent.living.empty()) Broken("S14: " + NameOf(key) + " ends before its workers");
  for (auto& [round_key, round] : rounds_) {
    if (round.members.contains(key)) round.lost_agent = true;
  }
  CheckExit(key, agent);
}

void Checker::OnWorkerStarted(AgentKey key, const rendezvous::Assignment& assignment,
                              int local_rank) {
  const RoundKey round_key = KeyOf(assignment);
  AgentNotes& agent = agents_[key];
  const std::string who =
      absl::StrCat("rank ", assignment.first_rank + local_rank, " on ", NameOf(key));
  const auto round = rounds_.find(round_key);
  const bool is_given = round != rounds_.end() && round->second.members.contains(key) &&
                        round->second.members[key] == assignment;
  if (!is_given) Broken("S4: " + who + " starts without the coordinator's word");
  if (agent.is_dead) Broken("S4: " + who + " starts under a dead agent");
  rounds_[round_key].started.insert(key);
  if (local_rank == 0) {
    const bool is_same_job = agent.newest.instance == round_key.instance;
    if (is_same_job && round_key <= agent.newest) Broken("S3: " + who + " starts in an old round");
    agent.newest = round_key;
    agent.round = round_key;
  }
  for (auto it = agents_.lower_bound({key.node, 0}); it != agents_.end(); ++it) {
    const auto& [other_key, other] = *it;
    if (other_key.node != key.node) break;
    if (other.living.empty()) continue;
    if (other_key != key || other.round != round_key) {
      Broken(absl::StrCat("S5: ", who, " starts while workers of another round live there"));
    }
  }
  if (!agent.living.insert(assignment.first_rank + local_rank).second) {
    Broken("S5: " + who + " starts twice");
  }
}

void Checker::OnWorkerEnded(AgentKey key, RoundKey round_key, int rank, int exit_code,
                            EndCause cause) {
  AgentNotes& agent = agents_[key];
  if (agent.living.erase(rank) == 0) Broken("a worker ends that did not live");
  RoundNotes& round = rounds_[round_key];
  switch (cause) {
    case EndCause::kScaleUp:
      round.has_made_room = true;
      round.succeeded.insert(rank);
      return;
    case EndCause::kSuccess:
      round.succeeded.insert(rank);
      return;
    case EndCause::kFollowing:
      if (!round.succeeded.empty()) round.left_early = true;
      round.failed[rank] = cause;
      return;
    case EndCause::kOwn:
      round.failed[rank] = cause;
      return;
    case EndCause::kStopped:
      (void)exit_code;
      return;
  }
}

void Checker::OnStep(int life, TimePoint local, const rendezvous::RendezvousMachine& machine,
                     const rendezvous::Event& event,
                     const std::vector<rendezvous::Action>& actions) {
  CoordinatorNotes& notes = coordinators_[life];
  // While it did not run it heard nobody: that time is nobody's silence.
  if (!notes.has_stepped) notes.started = notes.amnesty = notes.last_round = local;
  if (notes.has_stepped && local - notes.last_step > std::chrono::seconds(2)) {
    notes.amnesty = local;
    notes.uncounted += local - notes.last_step - std::chrono::seconds(1);
  }
  notes.has_stepped = true;
  notes.last_step = local;
  HearEvent(life, local, event);
  const auto* stop = std::get_if<rendezvous::StopOrdered>(&event);
  if (stop != nullptr && stop->how != rendezvous::StopHow::kAfterStep)
    ordered_.insert(machine.current().instance);
  // Of a crowd now and then: this looks at every node.
  const size_t nodes = scenario_.nodes.size();
  if (nodes < kCrowd || steps_++ % nodes == 0) {
    for (std::string& breach : rendezvous::CheckState(machine)) Broken(std::move(breach));
  }
  // Who is missed when the job is over is missed for its answer alone.
  const bool is_under_way = !machine.verdict().has_value();
  if (scenario_.is_elected && is_under_way && scenario_.nodes.size() <= 64) {
    std::set<AgentKey> elsewhere;
    for (const auto& place : machine.Places()) {
      if (KeyOf(place.node).node != notes.host) elsewhere.insert(KeyOf(place.node));
    }
    CheckMajority(life, local, notes.elsewhere, elsewhere);
    notes.elsewhere = std::move(elsewhere);
  }
  std::set<RoundKey> sealed;
  for (const rendezvous::Action& action : actions) {
    if (const auto* assign = std::get_if<rendezvous::Assign>(&action)) {
      OnAssign(life, *assign, sealed);
    } else if (const auto* drain = std::get_if<rendezvous::Drain>(&action)) {
      CheckLostText(life, local, drain->reason);
      const auto at = notes.sessions.find(drain->session);
      if (at == notes.sessions.end()) continue;
      const auto round = std::find_if(rounds_.begin(), rounds_.end(), [&](const auto& entry) {
        return entry.first.epoch == drain->epoch && entry.first.round == drain->round &&
               entry.second.members.contains(at->second);
      });
      if (round != rounds_.end()) {
        if (IsOfArrival(drain->reason) && !round->second.is_stopping) {
          CheckArrival(life, local, round->second);
        }
        OnStop(round->first, "the coordinator ends it: " + drain->reason);
      }
    } else if (const auto* conclude = std::get_if<rendezvous::Conclude>(&action)) {
      OnConclude(life, *conclude, machine.current().instance);
    } else if (const auto* record = std::get_if<rendezvous::Record>(&action)) {
      if (record->verdict && !notes.verdict_recorded) notes.verdict_recorded = local;
    } else if (const auto* told = std::get_if<rendezvous::TellSite>(&action)) {
      ++tally_.bad_nodes;
      notes.quarantine[told->host] = local + scenario_.policy.bad_nodes.quarantine;
    } else if (const auto* refuse = std::get_if<rendezvous::Refuse>(&action)) {
      OnRefuse(life, local, *refuse);
    } else if (const auto* close = std::get_if<rendezvous::CloseSession>(&action)) {
      const auto at = notes.sessions.find(close->session);
      // Closed without a newer session of that agent: it has been evicted.
      if (at != notes.sessions.end() && notes.newest[at->second] == close->session) {
        CheckEviction(life, local, at->second);
      }
    }
  }
  for (const RoundKey& key : sealed) CheckSealed(key);
}

}  // namespace ddprun::sim
