// How the job ends, and with which codes.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/etcd/leader_core.h"
#include "tests/sim/checker.h"

namespace ddprun::sim {
namespace {

constexpr int kRendezvous = 121;
constexpr int kLostCoordinator = 123;
constexpr int kTerminated = 143;
// As LeaderCore gives it, with the lease that the model of etcd grants.
constexpr Duration kRecordLimit = rendezvous::Tenure::kLease + std::chrono::seconds(2);

}  // namespace

void Checker::OnConclude(int life, const rendezvous::Conclude& action,
                         const JobInstance& instance) {
  const rendezvous::Verdict& verdict = action.verdict;
  RoundKey key{instance, action.epoch, action.round};
  // A coordinator that read the verdict from the file knows of no round.
  const auto last = last_sealed_.find(instance);
  if (action.round == Round{} && last != last_sealed_.end()) key = last->second;
  // An etcd that does not answer is waited for so long, and a disk that does not.
  const std::optional<TimePoint> recorded = coordinators_[life].verdict_recorded;
  const bool has_waited =
      scenario_.is_elected && recorded && coordinators_[life].last_step - *recorded >= kRecordLimit;
  if (scenario_.keeps_file && !coordinators_[life].has_durable_verdict && !has_waited) {
    Broken("S10: the verdict is told before it is durable");
  }
  const auto known = verdicts_.find(instance);
  if (known != verdicts_.end()) {
    const bool may_differ = IsForgotten(instance) || IsUnkept(instance);
    if (!(known->second == verdict) && !may_differ) Broken("S10: the verdict changed");
    return;
  }
  verdicts_[instance] = verdict;
  concluded_[instance] = key;
  if (verdict.exit_code == 0) {
    ++tally_.successes;
    CheckSuccess(key);
  } else {
    ++(ordered_.contains(instance) ? tally_.stops : tally_.failures);
    if (absl::StrContains(verdict.reason, "(--max-")) ++tally_.limited;
    CheckFailure(key, verdict, coordinators_[life].last_step);
  }
}

void Checker::CheckSuccess(const RoundKey& key) {
  const auto round = rounds_.find(key);
  if (round == rounds_.end()) return Broken("S11: success in a round that never was");
  const int world_size = round->second.any.world_size;
  for (int rank = 0; rank < world_size; ++rank) {
    if (round->second.succeeded.contains(rank)) continue;
    Broken(absl::StrCat("S11: success, and rank ", rank, " did not exit with 0"));
  }
  if (round->second.has_made_room && !is_end_wanted_) {
    Broken("S21: the job ends, and its workers have only made room for nodes");
  }
}

void Checker::CheckFailure(const RoundKey& key, const rendezvous::Verdict& verdict, TimePoint) {
  if (!verdict.first_failure && verdict.exit_code == kTerminated) {
    if (!ordered_.contains(key.instance)) Broken("S13: the job was stopped, and by nobody");
    return;
  }
  const bool has_rules = scenario_.policy.bad_nodes != rendezvous::BadNodeRules{};
  const bool is_too_many = absl::StrContains(verdict.reason, "--max-bad-nodes=") &&
                           tally_.bad_nodes >= scenario_.policy.bad_nodes.max_bad_nodes;
  if (!verdict.first_failure && has_rules &&
      (verdict.exit_code == rendezvous::kBadNodeExitCode || is_too_many)) {
    return;
  }
  if (!verdict.first_failure) {
    const auto round = rounds_.find(key);
    const bool has_loss = round != rounds_.end() && WhyMayStop(round->second) != "";
    const bool may_end = EndsWithItsFirstNode() || IsOutOfLosses(key, verdict);
    if (!may_end || verdict.exit_code != kRendezvous || !has_loss) {
      Broken("S13: the job ended without a failure: " + verdict.reason);
    }
    return;
  }
  const rendezvous::FailureReport& named = *verdict.first_failure;
  const auto round = rounds_.find(key);
  if (round == rounds_.end()) return Broken("S12: a failure in a round that never was");
  const RoundNotes& notes = round->second;
  if (notes.any.restart_count < notes.any.max_restarts && !HasFailedAlike(key, named)) {
    Broken("S9: the job ended with restarts left");
  }
  const auto told = std::find_if(notes.told.begin(), notes.told.end(),
                                 [&](const Told& any) { return IsSameWorker(any.report, named); });
  const auto cause = notes.failed.find(named.rank);
  if (told == notes.told.end() || cause == notes.failed.end()) {
    return Broken(absl::StrCat("S12: rank ", named.rank, " is named, whose end was no failure"));
  }
  if (verdict.exit_code != named.exit_code) Broken("S12: the code is not the named rank's");
  if (cause->second == EndCause::kOwn) return;
  TimePoint first_receipt = told->receipt;
  for (const Told& any : notes.told) {
    if (any.life == told->life) first_receipt = std::min(first_receipt, any.receipt);
  }
  for (const Told& other : notes.told) {
    const auto its = notes.failed.find(other.report.rank);
    const bool is_own = its != notes.failed.end() && its->second == EndCause::kOwn;
    const bool in_time =
        other.life == told->life &&
        other.receipt - first_receipt <=
            (MayFollow(named) ? std::chrono::seconds(2) : scenario_.policy.first_cause_window);
    if (!is_own || !in_time) continue;
    const bool says_so = (named.left_peer.has_value() && !other.report.left_peer.has_value()) ||
                         (MayFollow(named) && other.report.has_own_cause);
    if (!says_so && other.date + other.blur + told->blur >= told->date) continue;
    Broken(absl::StrCat("S12: rank ", named.rank, " is named, which followed rank ",
                        other.report.rank));
  }
}

bool Checker::IsOutOfLosses(const RoundKey& last, const rendezvous::Verdict& verdict) const {
  const rendezvous::RestartLimits& limits = scenario_.policy.limits;
  const bool is_preemption = absl::StrContains(verdict.reason, "(--max-preemptions=");
  if (!is_preemption && !absl::StrContains(verdict.reason, "(--max-node-losses=")) return false;
  const std::optional<int> limit = is_preemption ? limits.max_preemptions : limits.max_node_losses;
  // Each loss has ended a round.
  const auto rounds = std::count_if(rounds_.begin(), rounds_.end(), [&](const auto& entry) {
    return entry.first.instance == last.instance && WhyMayStop(entry.second) != "";
  });
  return limit && rounds > *limit;
}

bool Checker::HasFailedAlike(const RoundKey& last, const rendezvous::FailureReport& named) const {
  const int limit = scenario_.policy.limits.max_same_failure;
  const auto rounds = std::count_if(rounds_.begin(), rounds_.end(), [&](const auto& entry) {
    return entry.first.instance == last.instance &&
           std::ranges::any_of(entry.second.told, [&](const Told& any) {
             return any.report.exit_code == named.exit_code && any.report.signal == named.signal &&
                    any.report.step == named.step;
           });
  });
  return limit > 0 && rounds >= limit;
}

void Checker::OnRefuse(int life, TimePoint local, const rendezvous::Refuse& action) {
  const auto session = coordinators_[life].sessions.find(action.session);
  if (action.kind == rendezvous::Refusal::kBadNode &&
      session != coordinators_[life].sessions.end()) {
    for (auto& [round_key, round] : rounds_) {
      if (round.members.contains(session->second)) round.has_bad_node = true;
    }
  }
  if (!absl::StrContains(action.message, "gave up after")) return;
  ++tally_.given_up;
  const CoordinatorNotes& notes = coordinators_[life];
  const TimePoint since = std::max(notes.last_round, notes.started);
  if (local - since >= scenario_.policy.join_timeout) return;
  Broken(absl::StrCat("P6: given up too early: ", action.message));
}

void Checker::CheckExit(AgentKey key, const AgentNotes& agent) {
  const int code = *agent.exit_code;
  if (agent.was_signalled) return;
  if (agent.verdict) {
    if (code != agent.verdict->exit_code) {
      Broken(absl::StrCat("P5: ", NameOf(key), " ends with ", code, ", the verdict was ",
                          agent.verdict->exit_code));
    }
    return;
  }
  if (code == kRendezvous || code == kLostCoordinator || code == kTerminated) return;
  if (code == rendezvous::kBadNodeExitCode &&
      scenario_.policy.bad_nodes != rendezvous::BadNodeRules{}) {
    return;
  }
  if (code == 0) {
    // Without the verdict only a node may that has done all its work.
    const auto round = agent.round ? rounds_.find(*agent.round) : rounds_.end();
    if (round == rounds_.end()) return Broken("P5: " + NameOf(key) + " ends with 0 and never ran");
    const rendezvous::Assignment& place = round->second.members.at(key);
    const int ranks = scenario_.nodes[static_cast<size_t>(key.node)].local_world_size;
    for (int rank = place.first_rank; rank < place.first_rank + ranks; ++rank) {
      if (round->second.succeeded.contains(rank)) continue;
      Broken(absl::StrCat("P5: ", NameOf(key), " ends with 0, rank ", rank, " did not"));
    }
    return;
  }
  // The coordinator was lost before it named a cause: a failure of its own round is one.
  const bool has_failed = agent.round && !rounds_[*agent.round].failed.empty();
  if (!has_failed) Broken(absl::StrCat("P5: ", NameOf(key), " ends with ", code));
}

void Checker::AtEnd(bool is_over) {
  if (!is_over && breaches_.empty()) {
    std::string living;
    for (const auto& [key, agent] : agents_) {
      if (!agent.is_dead) absl::StrAppend(&living, " ", NameOf(key));
    }
    Broken("P7: not over in time, still there:" + living);
  }
  // A job that succeeded did so on every node that did its part of it.
  for (const auto& [instance, verdict] : verdicts_) {
    // Told as etcd took no record, for as long as that is waited for, it is not known to who took
    // the job over.
    if (IsUnkept(instance)) continue;
    if (verdict.exit_code != 0 || lost_verdicts_.contains(instance)) continue;
    for (const auto& [key, place] : rounds_[concluded_[instance]].members) {
      const AgentNotes& agent = agents_[key];
      if (!agent.exit_code || agent.was_signalled || *agent.exit_code == 0) continue;
      Broken(
          absl::StrCat("P5: the job succeeded and ", NameOf(key), " ends with ", *agent.exit_code));
    }
  }
}

}  // namespace ddprun::sim
