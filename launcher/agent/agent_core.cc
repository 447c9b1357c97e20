#include "launcher/agent/agent_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/process/exit_status.h"
#include "rendezvous/base/check.h"
#include "rendezvous/core/text.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Counted;
using rendezvous::SecondsLeft;

// Linux's numbers; <csignal> is no header for pure code.
constexpr int kSigHup = 1;
constexpr int kSigInt = 2;
constexpr int kSigTerm = 15;

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
  // Asked while its workers ran, which have been stopped for another reason since.
  if (!event.reason.empty() && LeavePreempted()) return;
  // The coordinator's own word, which follows our report.
  if (!contact_.lost_since) {
    is_failure_answered_ = true;
    if (failure_news_) failure_news_->is_passed = true;
  }
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
  Prepare(event.assignment);
}

void AgentCore::On(const rendezvous::Drained& event) {
  if (event.round != assignment_.round || end_ || verdict_) return;
  is_drained_ = true;
  // The report tells of a failure of this node that ends the job.
  const bool is_told_later = (own_failure_ && !HasBudget()) || policy_.is_check;
  if (failure_news_) {
    failure_news_->is_heard = true;
    failure_news_->is_passed = failure_news_->is_passed || !is_told_later;
  }
  const bool is_told = !event.reason.empty() && !is_told_later && !is_drain_told_;
  if (is_told) {
    is_drain_told_ = true;
    Tell(event.reason, HasWorkers() ? "; stopping this node's workers" : "");
  }
  if (event.is_cause_wanted && state_ == State::kRunning) AwaitEnding();
  if (IsInRound() && !ending_by_) Stop(kSigTerm);
  if (!is_told || !HasWorkers() || notice_) return;
  notice_ = Notice{event.reason, now_ + GraceLeft(), now_ + policy_.stopping_notice_delay};
}

bool AgentCore::IsInRound() const {
  return state_ == State::kPreparing || state_ == State::kRunning || state_ == State::kSucceeded;
}

void AgentCore::On(const rendezvous::Concluded& event) {
  if (state_ == State::kIdle || state_ == State::kLeaving) return;
  verdict_ = event.verdict;
  // An order that crossed another end, or that an older coordinator took for a graceful one.
  if (ordered_ && ordered_->how == rendezvous::StopHow::kNow) verdict_->is_kill = true;
  const bool is_ordered = ordered_ && ordered_->how != rendezvous::StopHow::kAfterStep;
  if (std::exchange(ordered_, std::nullopt)) {
    AnswerOrder(true);
    AnswerOrder(false);
  }
  actions_.push_back(AckVerdict{});  // at once: from here on this node needs no coordinator
  // This end was planned for want of that very word, and the workers are still being stopped.
  if (end_ && (end_->exit_code == kExitLostCoordinator || end_->owner == ExitOwner::kNobody)) {
    end_.reset();
  }
  if (IsStopOf(*verdict_) && HasWorkers() && !verdict_->is_kill) {
    const std::string live = LiveRanks();
    Tell(verdict_->reason, "; stopping ", live.empty() ? "what the workers left" : live,
         "; SIGKILL comes in ", SecondsLeft(GraceLeft()), " s");
  }
  const bool is_loss_of_node = verdict_->exit_code == kExitRendezvous && !verdict_->first_failure;
  const bool had_round = assignment_.round.value > 0;
  const bool is_held = is_loss_of_node && had_round;
  if (is_held) verdict_holds_at_ = now_ + policy_.own_signal_window;
  if (state_ == State::kJoining) {
    if (!is_held) return LeaveWithVerdict();
    // The drain before it has stopped the workers already.
    state_ = State::kStopping;
  }
  // After a success, what the workers have left is the worker group's: it has its own time.
  if (state_ == State::kSucceeded && verdict_->exit_code == 0 && !is_ordered) {
    if (!HasWorkers()) return LeaveWithVerdict();
    notice_ = Notice{"the job has succeeded, waiting for what its workers left", std::nullopt,
                     now_ + policy_.stopping_notice_delay};
    return;
  }
  if (IsInRound()) Stop(kSigTerm);
  if (verdict_->is_kill) Kill(verdict_->reason);
}

void AgentCore::On(const rendezvous::RendezvousFailed& event) {
  // The end is known; only our own workers are waited for.
  if (verdict_ || state_ == State::kLeaving) return;
  if (!end_) {
    const std::string message = AfterLoss(event.message);
    using Kind = rendezvous::RendezvousFailed::Kind;
    const bool is_local = event.kind == Kind::kLocal;
    // What failed here is why, or follows from what is.
    if (event.kind == Kind::kBadNode) is_failure_answered_ = true;
    PlanEndOfTrouble(is_local                          ? kExitMachine
                     : event.kind == Kind::kDistrusted ? kExitAuthentication
                     : event.kind == Kind::kBadNode    ? kExitBadNode
                                                       : kExitRendezvous,
                     is_local ? message : absl::StrCat(message, TakeAnsweredFailure()));
  }
  if (HasWorkers()) return Stop(kSigTerm);
  Leave();
}

void AgentCore::On(const WorkersPrepared& event) {
  // Of a round that has been given up meanwhile: its answer comes late.
  if (state_ != State::kPreparing || event.assignment != assignment_) return;
  if (event.error.empty()) return Run();
  On(LocalFailure{kExitMachine, event.error});
}

void AgentCore::On(const WorkerEnd& end) {
  live_.erase(end.local_rank);
  if (state_ == State::kStopping && end.has_code_of_its_own()) {
    // A consequence of our stop, unless what we stopped for was one itself.
    if (is_peer_blamed_) return Describe(end);
    own_ends_.push_back(end);
  }
  if (state_ != State::kRunning || end.was_told_to_stop) return;
  if (end.exit_code == 0) {
    if (++succeeded_count_ == 1) {
      actions_.push_back(
          ReportFirstSuccess{assignment_.round, assignment_.first_rank + end.local_rank, end.at});
    }
    if (succeeded_count_ == policy_.local_world_size) Succeed();
    return ReviewFollowers();
  }
  const std::vector<int>& more = policy_.more_stop_signals;
  if (end.signal == kSigHup || end.signal == kSigInt || end.signal == kSigTerm ||
      std::find(more.begin(), more.end(), end.signal) != more.end()) {
    suspicions_.push_back({end, now_ + policy_.signal_judgement_delay});
    return ReviewFollowers();
  }
  const bool is_cause = ending_ && ending_->contains(end.local_rank);
  if (ending_by_ && !is_cause) {
    EndWhileAwaiting(end);
    return ReviewFollowers();
  }
  if (!end.may_follow() || live_.empty() || is_cause) return Fail(end);
  SuspectFollower(end);
}

void AgentCore::On(const WorkersGone& event) {
  const bool is_to_end = !is_asked_to_scale_up_ || !stop_asked_by_.empty();
  have_read_stop_ = have_read_stop_ || (event.have_read_stop && is_to_end);
  are_workers_gone_ = true;
  live_.clear();
  notice_.reset();
  // Else all have exited by themselves, or nothing is waited for any more.
  if (state_ == State::kStopping || (state_ == State::kSucceeded && verdict_)) GoOn();
}

void AgentCore::GoOn() {
  if (undescribed_ > 0) return;  // to join again says that all has been said
  if (end_) return LeaveStopped();
  if (!verdict_) return Join();
  if (!verdict_holds_at_ || *verdict_holds_at_ <= now_) LeaveWithVerdict();
}

void AgentCore::On(const LocalFailure& event) {
  if (state_ == State::kLeaving) return;
  if (!end_ && !verdict_) {
    PlanEndOfTrouble(event.exit_code, event.message);
    actions_.push_back(LeaveJob{event.message});
  } else {
    Tell("error: ", event.message);
  }
  if (!HasWorkers()) return end_ ? Leave() : LeaveWithVerdict();
  Stop(kSigTerm);
}

void AgentCore::On(const AgentTimePassed&) {
  if (state_ == State::kLeaving) {
    GiveNotice();
    if (leaving_.by > now_) return;
    leaving_.is_clean = false;
    return leaving_.is_draining ? Exit() : Drain();
  }
  JudgeSuspicions();
  if (check_again_at_ && *check_again_at_ <= now_) BeginHealthCheck();
  if (ending_by_ && *ending_by_ <= now_) Stop(kSigTerm);
  GiveNotice();
  TellOfFailure();
  if (state_ == State::kPreparing && prepared_by_ <= now_) {
    On(LocalFailure{
        kExitMachine,
        absl::StrCat("the files of this node's workers were not made within ",
                     SecondsLeft(policy_.file_timeout), " s: their file system does not answer")});
  }
  if (state_ == State::kStopping && !HasWorkers()) GoOn();
  if (state_ != State::kLeaving) CheckContact();
}

void AgentCore::Join() {
  state_ = State::kJoining;
  succeeded_count_ = 0;
  suspicions_.clear();
  is_waiting_told_ = false;
  notice_.reset();
  has_asked_ = false;
  if (!policy_.health_pause || health_) return AskForPlace();
  BeginHealthCheck();
  notice_ = Notice{"waiting for this node's health check", now_ + *policy_.health_pause,
                   now_ + policy_.waiting_notice_delay};
}

void AgentCore::Prepare(const rendezvous::Assignment& assignment) {
  DDP_CHECK(!HasWorkers());
  state_ = State::kPreparing;
  ForgetHealth();
  const rendezvous::Assignment before = std::exchange(assignment_, assignment);
  prepared_by_ = now_ + policy_.file_timeout;
  own_failure_.reset();
  failure_news_.reset();
  is_failure_answered_ = false;
  loss_.clear();
  is_drained_ = false;
  is_drain_told_ = false;
  is_peer_blamed_ = false;
  undescribed_ = 0;
  is_asked_to_scale_up_ = false;
  ending_.reset();
  own_ends_.clear();
  SayWhatBegins(before);
  notice_.reset();
  if (assignment.restart_count > restarts_told_) {
    restarts_told_ = assignment.restart_count;
    Tell("restart ", assignment.restart_count, " of ", assignment.max_restarts);
  }
  actions_.push_back(PrepareWorkers{assignment});
}

void AgentCore::SayWhatBegins(const rendezvous::Assignment& before) {
  const std::string ranks = Counted(assignment_.world_size, "rank");
  // The first round's `before` has one node. A coordinator that took over from one that died knows
  // no earlier round, and so does not say that this one is smaller.
  const bool is_smaller = assignment_.node_count < before.node_count;
  if (!assignment_.note.empty()) {
    Tell(assignment_.note);
  } else if (is_smaller) {
    Tell("going on with ", Counted(assignment_.node_count, "node"), " and ", ranks, " instead of ",
         before.node_count, " and ", before.world_size);
  }
  if (!is_waiting_told_ || is_smaller) return;
  const int most = std::max(policy_.max_nodes, assignment_.node_count);
  Tell(assignment_.node_count, " of ", Counted(most, "node"), ": starting ", ranks);
}

void AgentCore::Run() {
  state_ = State::kRunning;
  are_workers_gone_ = false;
  for (int i = 0; i < policy_.local_world_size; ++i) live_.insert(i);
  actions_.push_back(StartWorkers{assignment_});
}

void AgentCore::Stop(int signal, bool may_be_for_all) {
  if (state_ == State::kStopping) return;
  state_ = State::kStopping;
  ending_by_.reset();
  kill_at_ = now_ + policy_.shutdown_timeout;
  if (notice_) notice_->deadline = kill_at_;
  // First of all: to describe a failure takes its time, and no worker should live on meanwhile.
  if (HasWorkers()) {
    actions_.push_back(StopWorkers{signal, policy_.shutdown_timeout, may_be_for_all});
  }
  for (const Suspicion& suspicion : std::exchange(suspicions_, {})) {
    if (end_ || verdict_) continue;
    if (!own_failure_) own_failure_ = suspicion.end;
    Describe(suspicion.end);
  }
  if (!HasWorkers()) return GoOn();
  if (!end_ && !verdict_ && !policy_.is_health_measured) BeginHealthCheck();
}

void AgentCore::GiveNotice() {
  if (!notice_ || !notice_->say_at || *notice_->say_at > now_) return;
  is_waiting_told_ = true;
  if (notice_->is_of_failure && failure_news_) failure_news_->is_told = true;
  std::string text = notice_->reason;
  if (state_ == State::kStopping) {
    absl::StrAppend(&text, "; stopping ", live_.empty() ? "what the workers left" : LiveRanks());
  }
  if (notice_->deadline) {
    absl::StrAppend(&text, ", ", SecondsLeft(*notice_->deadline - now_), " s left");
  }
  Tell(text);
  notice_->say_at = NextNotice();
}

std::optional<TimePoint> AgentCore::NextNotice() const {
  const TimePoint next = now_ + policy_.waiting_notice_interval;
  if (!notice_->deadline || next >= *notice_->deadline) return std::nullopt;
  return next;
}

}  // namespace ddprun::launcher
