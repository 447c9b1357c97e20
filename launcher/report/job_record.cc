#include "launcher/report/job_record.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

namespace ddprun::launcher {

std::vector<rendezvous::FailureReport> RoundRecord::Failures() const {
  std::vector<rendezvous::FailureReport> failures;
  for (const int local_rank : ended) {
    const WorkerRecord& worker = workers[static_cast<size_t>(local_rank)];
    if (worker.failure) failures.push_back(*worker.failure);
  }
  return failures;
}

Outcome OutcomeOf(ExitOwner owner) {
  switch (owner) {
    case ExitOwner::kNobody:
      return {"succeeded", nullptr};
    case ExitOwner::kWorker:
      return {"failed", "worker"};
    case ExitOwner::kSignal:
      return {"stopped", "ddprun"};
    case ExitOwner::kStopped:
      return {"stopped", "ddprun stop"};
    case ExitOwner::kRequeue:
      return {"stopped", "requeue_code"};
    case ExitOwner::kDdprun:
      break;
  }
  return {"error", "ddprun"};
}

JobRecord::JobRecord(Part part, int64_t started_unix_ms)
    : part_(std::move(part)), started_unix_ms_(started_unix_ms) {}

WorkerRecord* JobRecord::Find(int local_rank) {
  const auto index = static_cast<size_t>(local_rank);
  if (rounds_.empty() || index >= rounds_.back().workers.size()) return nullptr;
  return &rounds_.back().workers[index];
}

void JobRecord::Note(const AgentEvent& event, int64_t unix_ms) {
  if (const auto* found = std::get_if<HealthFound>(&event)) health_ = found->report;
  if (const auto* concluded = std::get_if<rendezvous::Concluded>(&event)) {
    verdict_ = concluded->verdict;
  }
  if (rounds_.empty()) return;
  RoundRecord& round = rounds_.back();
  if (const auto* end = std::get_if<WorkerEnd>(&event)) {
    WorkerRecord* worker = Find(end->local_rank);
    if (worker != nullptr && !worker->end) round.ended.push_back(end->local_rank);
    if (worker != nullptr) worker->end = *end;
  }
  if (const auto* drained = std::get_if<rendezvous::Drained>(&event)) {
    // The first word counts, also when the last worker is gone already.
    if (drained->round == round.assignment.round && round.end_reason.empty()) {
      round.end_reason = drained->reason;
    }
  }
  if (std::holds_alternative<WorkersGone>(event)) round.ended_unix_ms = unix_ms;
}

void JobRecord::Note(const AgentAction& action, int64_t unix_ms) {
  const bool is_joining = std::holds_alternative<JoinRound>(action);
  if (is_joining && !rounds_.empty() && rounds_.back().ended_unix_ms == 0) {
    rounds_.back().ended_unix_ms = unix_ms;  // it was given up before a worker was started
  }
  if (const auto* prepare = std::get_if<PrepareWorkers>(&action)) {
    BeginRound(prepare->assignment, unix_ms);
  }
  if (const auto* print = std::get_if<PrintReport>(&action)) verdict_ = print->verdict;
  if (const auto* end = std::get_if<EndJob>(&action)) {
    end_ = *end;
    ended_unix_ms_ = unix_ms;
  }
}

void JobRecord::BeginRound(const rendezvous::Assignment& assignment, int64_t unix_ms) {
  // Known better by now than when the round began to end.
  const bool is_next = !rounds_.empty() && rounds_.back().assignment.epoch == assignment.epoch &&
                       rounds_.back().assignment.round.value + 1 == assignment.round.value;
  if (is_next && !assignment.restart_reason.empty()) {
    rounds_.back().end_reason = assignment.restart_reason;
  }
  RoundRecord next{.assignment = assignment, .started_unix_ms = unix_ms};
  for (int i = 0; i < part_.config.workers_per_node; ++i) next.workers.push_back({.local_rank = i});
  ++rounds_seen_;
  rounds_.push_back(std::move(next));
  if (rounds_.size() > kMaxRounds) {
    failures_left_out_ += rounds_.front().Failures().size();
    rounds_.pop_front();
  }
  size_t old = 0;
  for (const RoundRecord& round : rounds_) old += round.Failures().size();
  for (RoundRecord& round : rounds_) {
    for (const int local_rank : round.ended) {
      if (old <= kMaxOldFailures) return;
      WorkerRecord& worker = round.workers[static_cast<size_t>(local_rank)];
      if (!worker.failure) continue;
      worker.failure.reset();
      ++failures_left_out_;
      --old;
    }
  }
}

void JobRecord::WorkerRuns(int local_rank, int pid, const std::string& error_file) {
  WorkerRecord* worker = Find(local_rank);
  if (worker == nullptr) return;
  worker->pid = pid;
  worker->error_file = error_file;
}

size_t JobRecord::room_for_texts() const {
  if (rounds_.empty()) return kMaxTexts;
  const size_t described = rounds_.back().Failures().size();
  return kMaxTexts - std::min(kMaxTexts, described);
}

LastWords JobRecord::Failed(const WorkerEnd& end) const {
  LastWords words;
  rendezvous::FailureReport& report = words.report;
  report.node = part_.node;
  report.host = part_.host;
  report.local_rank = end.local_rank;
  report.pid = end.pid;
  report.exit_code = end.exit_code;
  report.signal = end.signal;
  report.dumped_core = end.dumped_core;
  report.message = end.message;
  report.unix_time_ms = end.unix_ms;
  report.step = end.step;
  report.progress = std::chrono::floor<std::chrono::milliseconds>(end.progress);
  if (rounds_.empty()) return words;
  const RoundRecord& round = rounds_.back();
  report.node_rank = round.assignment.node_rank;
  report.rank = round.assignment.first_rank + end.local_rank;
  report.error_file = round.workers.at(static_cast<size_t>(end.local_rank)).error_file;
  return words;
}

std::vector<LastWords> JobRecord::Unread() const {
  std::vector<LastWords> unread;
  if (rounds_.empty()) return unread;
  for (const int local_rank : rounds_.back().ended) {
    const WorkerRecord& worker = rounds_.back().workers[static_cast<size_t>(local_rank)];
    if (worker.is_read || worker.end->exit_code == 0) continue;
    unread.push_back(Failed(*worker.end));
    unread.back().is_failure = !worker.end->was_told_to_stop;
  }
  return unread;
}

std::optional<rendezvous::FailureReport> JobRecord::Add(const LastWords& words) {
  WorkerRecord* worker = Find(words.report.local_rank);
  if (worker == nullptr) return std::nullopt;
  worker->is_read = true;
  if (words.is_left_out) ++failures_left_out_;
  // What was told of a worker stays what it was.
  if (words.is_failure && !worker->failure) worker->failure = words.report;
  return worker->failure;
}

}  // namespace ddprun::launcher
