#include "launcher/agent/agent_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/process/exit_status.h"
#include "rendezvous/base/check.h"

namespace ddprun::launcher {
namespace {

// Linux's numbers; <csignal> is no header for pure code.
constexpr int kSigHup = 1;
constexpr int kSigInt = 2;
constexpr int kSigTerm = 15;

std::optional<TimePoint> Earlier(std::optional<TimePoint> a, std::optional<TimePoint> b) {
  if (!a) return b;
  if (!b) return a;
  return std::min(*a, *b);
}

}  // namespace

AgentCore::AgentCore(AgentPolicy policy) : policy_(std::move(policy)) {
  DDP_CHECK(policy_.local_world_size >= 1);
}

std::vector<AgentAction> AgentCore::Step(TimePoint now, const AgentEvent& event) {
  DDP_CHECK(now >= now_);
  now_ = now;
  if (state_ == State::kDone) return {};
  std::visit([this](const auto& e) { On(e); }, event);
  return std::exchange(actions_, {});
}

void AgentCore::On(const AgentStarted&) {
  DDP_CHECK(state_ == State::kIdle);
  Join();
}

void AgentCore::On(const rendezvous::Waiting& event) {
  if (state_ != State::kJoining) return;
  if (notice_ && notice_->reason == event.reason) {  // said again, or with another deadline
    notice_->deadline = event.deadline;
    if (is_waiting_told_ && !notice_->say_at) notice_->say_at = NextNotice();
    return;
  }
  TimePoint say_at = now_;
  if (!is_waiting_told_) {
    say_at = notice_ ? notice_->say_at.value_or(now_) : now_ + policy_.waiting_notice_delay;
  }
  notice_ = Notice{event.reason, event.deadline, say_at};
  GiveNotice();
}

void AgentCore::On(const rendezvous::Assigned& event) {
  const bool is_newer =
      event.assignment.instance != assignment_.instance ||
      event.assignment.epoch > assignment_.epoch ||
      (event.assignment.epoch == assignment_.epoch && event.assignment.round > assignment_.round);
  // An assignment that crossed our leave, or a repeated one, starts nothing.
  if (state_ != State::kJoining || !is_newer) return;
  Run(event.assignment);
}

void AgentCore::On(const rendezvous::Drained& event) {
  if (event.round != assignment_.round || exit_code_ || verdict_) return;
  // The report tells of a failure of this node that ends the job.
  const bool is_told_later = unanswered_failure_ && !HasBudget();
  if (!event.reason.empty() && !is_told_later && !is_drain_told_) {
    is_drain_told_ = true;
    actions_.push_back(
        Say{absl::StrCat(event.reason, HasWorkers() ? "; stopping this node's workers" : "")});
  }
  if (state_ == State::kRunning || state_ == State::kSucceeded) Stop(kSigTerm);
}

void AgentCore::On(const rendezvous::Concluded& event) {
  if (state_ == State::kIdle || state_ == State::kDone) return;
  verdict_ = event.verdict;
  actions_.push_back(AckVerdict{});  // at once: from here on this node needs no coordinator
  switch (state_) {
    case State::kIdle:
    case State::kDone:
      return;
    case State::kJoining:
    case State::kRunning:
    case State::kSucceeded:
      if (!HasWorkers()) return FinishWithVerdict();
      return Stop(kSigTerm);
    case State::kStopping:
      return;  // told when the workers are gone
  }
}

void AgentCore::On(const rendezvous::ContactLost& event) {
  if (!contact_.lost_since) contact_.lost_since = now_;
  if (!event.is_gone) {
    contact_.refused_since.reset();
  } else if (!contact_.refused_since) {
    contact_.refused_since = now_;
  }
  CheckContact();
}

void AgentCore::On(const rendezvous::ContactRestored&) { contact_ = Contact{}; }

void AgentCore::On(const rendezvous::RendezvousFailed& event) {
  if (verdict_) return;  // the end is known; only our own workers are waited for
  // A worker of ours failed and nobody is left to name a first cause: then it is ours.
  if (unanswered_failure_ && !exit_code_) {
    PlanEnd(unanswered_failure_->exit_code, ExitOwner::kWorker, event.message);
    actions_.push_back(Say{absl::StrCat(
        "error: ", event.message, "; ending with the code of local rank ",
        unanswered_failure_->local_rank, ", whose end was: ", unanswered_failure_->message)});
  } else if (!exit_code_) {
    const int code = is_coordinator_gone_ ? kExitLostCoordinator : kExitRendezvous;
    PlanEnd(event.is_local ? kExitMachine : code, ExitOwner::kDdprun, event.message);
    actions_.push_back(Say{absl::StrCat("error: ", event.message)});
  }
  if (HasWorkers()) return Stop(kSigTerm);
  Finish(*exit_code_);
}

void AgentCore::On(const WorkerEnded& event) {
  if (state_ != State::kRunning) return;  // after our own stop ends are consequences
  if (event.end.exit_code == 0) {
    if (++succeeded_count_ == 1) {
      actions_.push_back(ReportFirstSuccess{
          assignment_.round, assignment_.first_rank + event.end.local_rank, event.at});
    }
    if (succeeded_count_ == policy_.local_world_size) Succeed();
    return;
  }
  if (CouldBeAStop(event.end.signal)) {
    suspicions_.push_back({event.end, event.at, now_ + policy_.signal_judgement_delay});
    return;
  }
  Fail(event.end, event.at);
}

void AgentCore::On(const WorkersGone&) {
  are_workers_gone_ = true;
  if (state_ != State::kStopping) return;  // all exited by themselves: judged one by one
  if (exit_code_) return FinishStopped();
  if (verdict_) return FinishWithVerdict();
  Join();
}

void AgentCore::On(const SignalReceived& event) {
  suspicions_.clear();
  if (event.is_kill && HasWorkers()) {
    if (++kill_signals_ == 1) {
      actions_.push_back(KillWorkers{});
      return;
    }
    actions_.push_back(Say{"ending although processes of this job do not die"});
    if (!exit_code_) {
      PlanEnd(kExitSignalBase + event.signal, ExitOwner::kSignal,
              absl::StrCat("stopped by ", SignalName(event.signal)));
    }
    return Finish(*exit_code_);
  }
  // Told as well when the workers are being stopped already: the signal ends what would follow.
  const bool is_news = !exit_code_ || state_ != State::kStopping;
  if (!exit_code_) {
    PlanEnd(kExitSignalBase + event.signal, ExitOwner::kSignal,
            absl::StrCat("stopped by ", SignalName(event.signal)));
    actions_.push_back(LeaveJob{exit_reason_});
  }
  if (!HasWorkers()) return Finish(*exit_code_);
  if (is_news) {
    const bool is_first_of_two = event.signal == kSigInt || event.signal == kSigTerm;
    actions_.push_back(Say{absl::StrCat(SignalName(event.signal), ": stopping the workers; ",
                                        is_first_of_two ? "a second " : "",
                                        "SIGINT or SIGTERM kills them at once")});
  }
  Stop(event.signal);
}

void AgentCore::On(const LocalFailure& event) {
  actions_.push_back(Say{absl::StrCat("error: ", event.message)});
  if (!exit_code_ && !verdict_) {
    PlanEnd(event.exit_code, ExitOwner::kDdprun, event.message);
    actions_.push_back(LeaveJob{event.message});
  }
  if (!HasWorkers()) return exit_code_ ? Finish(*exit_code_) : FinishWithVerdict();
  Stop(kSigTerm);
}

void AgentCore::On(const AgentTimePassed&) {
  JudgeSuspicions();
  GiveNotice();
  if (state_ != State::kDone) CheckContact();
}

void AgentCore::Join() {
  state_ = State::kJoining;
  succeeded_count_ = 0;
  suspicions_.clear();
  is_waiting_told_ = false;
  notice_.reset();
  actions_.push_back(JoinRound{});
}

void AgentCore::Run(const rendezvous::Assignment& assignment) {
  DDP_CHECK(!HasWorkers());
  state_ = State::kRunning;
  assignment_ = assignment;
  are_workers_gone_ = false;
  unanswered_failure_.reset();
  is_coordinator_gone_ = false;
  notice_.reset();
  // That the job goes on with fewer nodes, and why, is worth a line however short the wait was.
  if (!assignment.note.empty()) actions_.push_back(Say{assignment.note});
  is_drain_told_ = false;
  if (assignment.restart_count > restarts_told_) {
    restarts_told_ = assignment.restart_count;
    actions_.push_back(
        Say{absl::StrCat("restart ", assignment.restart_count, " of ", assignment.max_restarts)});
  }
  actions_.push_back(StartWorkers{assignment});
}

void AgentCore::Succeed() {
  state_ = State::kSucceeded;
  actions_.push_back(ReportSuccess{assignment_.round});
}

void AgentCore::Stop(int signal) {
  if (state_ == State::kStopping) return;
  state_ = State::kStopping;
  // First of all: to describe a failure, files are read, and no worker should live on meanwhile.
  if (HasWorkers()) actions_.push_back(StopWorkers{signal, policy_.shutdown_timeout});
  for (const Suspicion& suspicion : std::exchange(suspicions_, {})) {
    if (exit_code_ || verdict_) continue;
    if (!unanswered_failure_) unanswered_failure_ = suspicion.end;
    actions_.push_back(ReportFailure{assignment_, suspicion.end, suspicion.at});
  }
  if (!HasWorkers()) On(WorkersGone{});
}

bool AgentCore::CouldBeAStop(int signal) const {
  const std::vector<int>& more = policy_.more_stop_signals;
  return signal == kSigHup || signal == kSigInt || signal == kSigTerm ||
         std::find(more.begin(), more.end(), signal) != more.end();
}

void AgentCore::Fail(const WorkerEnd& end, TimePoint at) {
  unanswered_failure_ = end;
  suspicions_.insert(suspicions_.begin(), {end, at, now_});  // one no more: Stop reports them
  Stop(kSigTerm);
}

void AgentCore::JudgeSuspicions() {
  if (suspicions_.empty() || suspicions_.front().judge_at > now_) return;
  const Suspicion first = suspicions_.front();
  suspicions_.erase(suspicions_.begin());
  if (state_ == State::kRunning) Fail(first.end, first.at);
}

void AgentCore::GiveNotice() {
  if (!notice_ || !notice_->say_at || *notice_->say_at > now_) return;
  is_waiting_told_ = true;
  std::string text = notice_->reason;
  if (notice_->deadline) {
    const auto left = std::chrono::ceil<std::chrono::seconds>(*notice_->deadline - now_).count();
    absl::StrAppend(&text, ", ", std::max<int64_t>(0, left), " s left");
  }
  actions_.push_back(Say{std::move(text)});
  notice_->say_at = NextNotice();
}

std::optional<TimePoint> AgentCore::NextNotice() const {
  const TimePoint next = now_ + policy_.waiting_notice_interval;
  if (!notice_->deadline || next >= *notice_->deadline) return std::nullopt;
  return next;
}

std::optional<TimePoint> AgentCore::ContactDeadline() const {
  if (!contact_.lost_since) return std::nullopt;
  if (state_ == State::kSucceeded) return *contact_.lost_since + policy_.exit_barrier_timeout;
  if (state_ != State::kRunning) return std::nullopt;  // joining: the client keeps the time
  std::optional<TimePoint> deadline = *contact_.lost_since + policy_.orphan_timeout;
  if (contact_.refused_since && assignment_.coordinator_is_member) {
    deadline = Earlier(deadline, *contact_.refused_since + policy_.refused_grace);
  }
  return deadline;
}

void AgentCore::CheckContact() {
  const std::optional<TimePoint> deadline = ContactDeadline();
  if (!deadline || *deadline > now_) return;
  if (state_ == State::kSucceeded) {
    actions_.push_back(
        Say{"all workers of this node succeeded, but the coordinator has been lost since; ending "
            "with 0 without the job's verdict"});
    PlanEnd(kExitSuccess, ExitOwner::kNobody, "lost the coordinator after all workers succeeded");
    if (!HasWorkers()) return Finish(*exit_code_);
    return Stop(kSigTerm);
  }
  if (contact_.refused_since && assignment_.coordinator_is_member) {
    is_coordinator_gone_ = true;
    actions_.push_back(Say{
        "the ddprun that coordinates this job is gone; stopping this node's workers and waiting "
        "for it to come back"});
    return Stop(kSigTerm);
  }
  actions_.push_back(Say{"error: no word from the coordinator for too long; stopping the workers"});
  PlanEnd(kExitLostCoordinator, ExitOwner::kDdprun, "no word from the coordinator for too long");
  Stop(kSigTerm);
}

void AgentCore::FinishWithVerdict() {
  const bool is_workers =
      verdict_->first_failure && verdict_->first_failure->exit_code == verdict_->exit_code;
  PlanEnd(verdict_->exit_code,
          verdict_->exit_code == 0 ? ExitOwner::kNobody
          : is_workers             ? ExitOwner::kWorker
                                   : ExitOwner::kDdprun,
          verdict_->reason);
  if (verdict_->exit_code != 0) actions_.push_back(PrintReport{*verdict_});
  Finish(verdict_->exit_code);
}

void AgentCore::FinishStopped() {
  // The job had failed before the signal: what failed first is what the user wants to know.
  if (verdict_ && verdict_->first_failure && exit_owner_ == ExitOwner::kSignal) {
    rendezvous::Verdict report = *verdict_;
    report.exit_code = *exit_code_;
    report.reason = exit_reason_;
    actions_.push_back(PrintReport{std::move(report)});
  }
  Finish(*exit_code_);
}

void AgentCore::Finish(int exit_code) {
  state_ = State::kDone;
  actions_.push_back(ExitAgent{exit_code, exit_owner_, exit_reason_});
}

void AgentCore::PlanEnd(int exit_code, ExitOwner owner, std::string reason) {
  exit_code_ = exit_code;
  exit_owner_ = owner;
  exit_reason_ = std::move(reason);
}

std::optional<TimePoint> AgentCore::NextDeadline() const {
  if (state_ == State::kDone) return std::nullopt;
  std::optional<TimePoint> deadline = ContactDeadline();
  if (notice_) deadline = Earlier(deadline, notice_->say_at);
  if (!suspicions_.empty()) deadline = Earlier(deadline, suspicions_.front().judge_at);
  return deadline;
}

std::string AgentCore::Explain() const {
  switch (state_) {
    case State::kIdle:
      return "not started";
    case State::kJoining:
      return "waiting for a place in the next round";
    case State::kRunning:
      return absl::StrCat("round ", assignment_.round.value, ": running, ", succeeded_count_,
                          " of ", policy_.local_world_size, " workers have succeeded");
    case State::kSucceeded:
      return absl::StrCat("round ", assignment_.round.value,
                          ": all workers have succeeded, waiting for the job's verdict");
    case State::kStopping:
      return absl::StrCat("round ", assignment_.round.value, ": stopping the workers");
    case State::kDone:
      return "done";
  }
  return "";
}

}  // namespace ddprun::launcher
