#include "launcher/report/event_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/process/exit_status.h"

namespace ddprun::launcher {
namespace {

// The wall clock may be set back meanwhile.
double Seconds(int64_t from_unix_ms, int64_t to_unix_ms) {
  return static_cast<double>(std::max<int64_t>(0, to_unix_ms - from_unix_ms)) / 1000;
}

bool IsSame(const Problem& a, const Problem& b) { return a.kind == b.kind && a.node == b.node; }

}  // namespace

EventLog::EventLog(JobRecord::Part part, Emit emit)
    : part_(std::move(part)), emit_(std::move(emit)) {}

void EventLog::Write(const JobEvent& event, int64_t unix_ms) {
  if (has_ended_) return;
  emit_({.unix_ms = unix_ms,
         .run_id = part_.config.run_id,
         .node = part_.host,
         .node_id = part_.node.value,
         .round = round_ ? round_->assignment.round.value : 0,
         .number = ++number_},
        event);
}

void EventLog::Note(const AgentEvent& event, int64_t unix_ms) {
  if (std::holds_alternative<AgentStarted>(event)) {
    started_unix_ms_ = unix_ms;
    Write(JobStartEvent{.program = part_.program,
                        .min_nodes = part_.config.nodes.min,
                        .max_nodes = part_.config.nodes.max,
                        .workers = part_.config.workers_per_node,
                        .max_restarts = part_.config.max_restarts},
          unix_ms);
  } else if (const auto* waiting = std::get_if<rendezvous::Waiting>(&event)) {
    Wait(waiting->reason, unix_ms);
  } else if (const auto* end = std::get_if<WorkerEnd>(&event)) {
    Count(*end);
  } else if (const auto* failure = std::get_if<FailureDescribed>(&event)) {
    Write(FailureEvent{failure->report}, unix_ms);
  } else if (const auto* drained = std::get_if<rendezvous::Drained>(&event)) {
    // The first word counts, also when the last worker is gone already.
    const bool is_of_round = round_ && drained->round == round_->assignment.round;
    if (is_of_round && round_->drain_reason.empty()) round_->drain_reason = drained->reason;
  } else if (const auto* concluded = std::get_if<rendezvous::Concluded>(&event)) {
    Conclude(concluded->verdict, unix_ms);
  } else if (const auto* found = std::get_if<HealthFound>(&event)) {
    if (std::exchange(health_, found->report) != found->report) {
      Write(HealthEvent{found->report}, unix_ms);
    }
  } else if (std::holds_alternative<WorkersGone>(event)) {
    EndRound(unix_ms);
  } else {
    NoteStop(event, unix_ms);
  }
}

void EventLog::NoteStop(const AgentEvent& event, int64_t unix_ms) {
  using How = StopAskedEvent::How;
  if (const auto* asked = std::get_if<StopAsked>(&event)) {
    AskToStop(How::kAfterStep, asked->why, unix_ms);
  } else if (const auto* order = std::get_if<StopOrder>(&event)) {
    using rendezvous::StopHow;
    AskToStop(order->how == StopHow::kAfterStep ? How::kAfterStep
              : order->how == StopHow::kNow     ? How::kKill
                                                : How::kAtOnce,
              order->reason, unix_ms);
  } else if (const auto* request = std::get_if<rendezvous::StopRequested>(&event);
             request != nullptr && !request->is_to_scale_up) {
    // Where the order was given, it comes back from the coordinator.
    const bool is_known = stop_.how == How::kAfterStep && stop_.why == request->reason;
    if (!is_known) AskToStop(How::kAfterStep, request->reason, unix_ms);
  } else if (const auto* signal = std::get_if<SignalReceived>(&event);
             signal != nullptr && !signal->is_again) {
    const std::string name = SignalName(signal->signal);
    if (end_reason_.empty()) end_reason_ = "stopped by " + name;
    AskToStop(signal->is_kill ? How::kKill : How::kAtOnce, name, unix_ms);
  }
}

void EventLog::AskToStop(StopAskedEvent::How how, const std::string& why, int64_t unix_ms) {
  stop_ = {how, why};
  Write(stop_, unix_ms);
}

void EventLog::Note(const AgentAction& action, int64_t unix_ms) {
  if (std::holds_alternative<JoinRound>(action)) {
    EndRound(unix_ms);  // where it was given up before a worker was started
    asked_unix_ms_ = unix_ms;
  } else if (const auto* prepare = std::get_if<PrepareWorkers>(&action)) {
    StartRound(prepare->assignment, unix_ms);
  } else if (const auto* end = std::get_if<EndJob>(&action)) {
    End(*end, unix_ms);
  }
}

// The same reason is given again when its deadline changes, or the coordinator.
void EventLog::Wait(const std::string& reason, int64_t unix_ms) {
  if (reason == waiting_reason_) return;
  waiting_reason_ = reason;
  Write(WaitingEvent{reason}, unix_ms);
}

void EventLog::Count(const WorkerEnd& end) {
  if (!round_ || round_->is_over) return;
  if (end.exit_code == 0) {
    ++round_->succeeded;
  } else if (end.was_told_to_stop) {
    ++round_->stopped;
  } else {
    if (++round_->failed > 1) return;
    const int rank = round_->assignment.first_rank + end.local_rank;
    round_->failure_reason = absl::StrCat("rank ", rank, ": ", end.message);
  }
}

void EventLog::Conclude(const rendezvous::Verdict& verdict, int64_t unix_ms) {
  end_reason_ = verdict.reason;
  const auto& first = verdict.first_failure;
  // That of this node has been told when it was described; a worker that hangs is not.
  if (first && (first->node != part_.node || first->is_hang)) Write(FailureEvent{*first}, unix_ms);
}

void EventLog::StartRound(const rendezvous::Assignment& assignment, int64_t unix_ms) {
  EndRound(unix_ms);
  const bool is_first = !round_;
  RestartEvent restart{.restart_count = assignment.restart_count,
                       .max_restarts = assignment.max_restarts};
  if (round_) {
    restart.is_charged = assignment.restart_count > round_->assignment.restart_count;
    restart.reason =
        assignment.restart_reason.empty() ? WhyRoundEnded() : assignment.restart_reason;
  }
  round_ = RoundState{.assignment = assignment, .started_unix_ms = unix_ms};
  waiting_reason_.clear();
  if (!is_first) Write(restart, unix_ms);
  RoundStartEvent start{.assignment = assignment, .workers = part_.config.workers_per_node};
  if (asked_unix_ms_ != 0) start.rendezvous_s = Seconds(asked_unix_ms_, unix_ms);
  asked_unix_ms_ = 0;
  Write(start, unix_ms);
}

std::string EventLog::WhyRoundEnded() const {
  if (!round_->drain_reason.empty()) return round_->drain_reason;
  if (!round_->failure_reason.empty()) return round_->failure_reason;
  if (!end_reason_.empty()) return end_reason_;
  const bool have_all = round_->succeeded == part_.config.workers_per_node;
  return have_all ? "all workers of this node succeeded" : "";
}

void EventLog::EndRound(int64_t unix_ms) {
  if (!round_ || std::exchange(round_->is_over, true)) return;
  Write(RoundEndEvent{.reason = WhyRoundEnded(),
                      .lasted_s = Seconds(round_->started_unix_ms, unix_ms),
                      .succeeded = round_->succeeded,
                      .failed = round_->failed,
                      .stopped = round_->stopped},
        unix_ms);
}

void EventLog::End(const EndJob& end, int64_t unix_ms) {
  if (end_reason_.empty()) end_reason_ = end.reason;
  EndRound(unix_ms);
  Write(JobEndEvent{.end = end,
                    .restart_count = round_ ? round_->assignment.restart_count : 0,
                    .lasted_s = Seconds(started_unix_ms_, unix_ms),
                    .effective_share = effective_share_},
        unix_ms);
  has_ended_ = true;
}

void EventLog::NoteWorkerRuns(int64_t unix_ms) {
  if (!round_ || round_->is_over) return;
  if (++round_->workers_running != part_.config.workers_per_node) return;
  Write(WorkersStartedEvent{.workers = round_->workers_running,
                            .start_s = Seconds(round_->started_unix_ms, unix_ms)},
        unix_ms);
}

void EventLog::NoteFirstStep(int64_t unix_ms, double ago_s) {
  if (!round_ || round_->is_over || std::exchange(round_->has_told_first_step, true)) return;
  const auto at_unix_ms = unix_ms - static_cast<int64_t>(std::clamp(ago_s, 0.0, 1e9) * 1000);
  Write(FirstStepEvent{Seconds(round_->started_unix_ms, at_unix_ms)}, unix_ms);
}

void EventLog::NoteProblems(const std::vector<Problem>& problems, int64_t unix_ms) {
  std::erase_if(known_, [&](const Known& known) {
    const bool is_there = std::any_of(problems.begin(), problems.end(), [&](const Problem& now) {
      return IsSame(now, known.problem);
    });
    if (!is_there) {
      Write(ProblemEndEvent{known.problem, Seconds(known.began_unix_ms, unix_ms)}, unix_ms);
    }
    return !is_there;
  });
  for (const Problem& problem : problems) {
    const bool is_known = std::any_of(known_.begin(), known_.end(), [&](const Known& known) {
      return IsSame(known.problem, problem);
    });
    if (is_known) continue;
    // It had been so for a while before it was called one.
    const double since_s = std::clamp(problem.since_s, 0.0, Seconds(started_unix_ms_, unix_ms));
    known_.push_back({problem, unix_ms - static_cast<int64_t>(since_s * 1000)});
    Write(ProblemEvent{problem}, unix_ms);
  }
}

}  // namespace ddprun::launcher
