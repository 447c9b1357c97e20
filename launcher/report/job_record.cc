#include "launcher/report/job_record.h"

#include <algorithm>
#include <variant>

namespace ddprun::launcher {

JobRecord::JobRecord(int workers, int64_t started_unix_ms)
    : workers_(workers), started_unix_ms_(started_unix_ms) {}

void JobRecord::Heard(const AgentEvent& event, int64_t unix_ms) {
  if (const auto* concluded = std::get_if<rendezvous::Concluded>(&event)) {
    verdict_ = concluded->verdict;
  }
  if (rounds_.empty()) return;
  RoundRecord& round = rounds_.back();
  if (const auto* drained = std::get_if<rendezvous::Drained>(&event)) {
    // The first word counts, also when the last worker is gone already.
    if (drained->round == round.assignment.round && round.end_reason.empty()) {
      round.end_reason = drained->reason;
    }
  }
  if (std::holds_alternative<WorkersGone>(event)) round.ended_unix_ms = unix_ms;
}

void JobRecord::Does(const AgentAction& action, int64_t unix_ms) {
  if (const auto* start = std::get_if<StartWorkers>(&action)) {
    RoundRecord round;
    round.assignment = start->assignment;
    round.started_unix_ms = unix_ms;
    for (int i = 0; i < workers_; ++i) round.workers.push_back({.local_rank = i});
    rounds_.push_back(std::move(round));
    ++rounds_seen_;
    round_failures_seen_ = 0;
    if (rounds_.size() > kMaxRounds) rounds_.pop_front();
  }
  if (const auto* exit = std::get_if<ExitAgent>(&action)) {
    end_ = *exit;
    ended_unix_ms_ = unix_ms;
  }
}

void JobRecord::WorkerRuns(int local_rank, int pid) {
  if (!rounds_.empty()) rounds_.back().workers.at(static_cast<size_t>(local_rank)).pid = pid;
}

void JobRecord::WorkerIsGone(const WorkerEnd& end, bool was_told_to_stop) {
  if (rounds_.empty()) return;
  WorkerRecord& worker = rounds_.back().workers.at(static_cast<size_t>(end.local_rank));
  worker.has_ended = true;
  worker.was_told_to_stop = was_told_to_stop;
  worker.exit_code = end.exit_code;
  worker.signal = end.signal;
}

void JobRecord::SetFailures(const std::vector<rendezvous::FailureReport>& failures,
                            uint64_t left_out) {
  if (rounds_.empty()) return;
  const rendezvous::Assignment& round = rounds_.back().assignment;
  while (!failures_.empty() && failures_.back().assignment == round) failures_.pop_back();
  // Not what was just removed: some of the round may have been pushed out before.
  failures_seen_ -= round_failures_seen_;
  round_failures_seen_ = failures.size() + left_out;
  failures_seen_ += round_failures_seen_;

  const size_t older =
      std::min(failures_.size(), kMaxFailures - std::min(kMaxFailures, failures.size()));
  while (failures_.size() > older) failures_.pop_front();
  // The newest, and the first: what the others follow from.
  const size_t skipped = failures.size() - std::min(kMaxFailures, failures.size());
  for (size_t i = 0; i < failures.size(); ++i) {
    if (i == 0 || i > skipped) failures_.push_back({round, failures[i]});
  }
}

}  // namespace ddprun::launcher
