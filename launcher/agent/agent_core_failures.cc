// Failures of this node's workers: from a worker's end to what the user is told of it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/agent/agent_core.h"
#include "rendezvous/core/text.h"

namespace ddprun::launcher {
namespace {

// Linux's numbers; <csignal> is no header for pure code.
constexpr int kSigTerm = 15;

// By so much a follower is dated behind the failure that was its cause. More than two reports of
// one node differ in the time that they take.
constexpr Duration kBehind = std::chrono::seconds(1);

}  // namespace

void AgentCore::Describe(const WorkerEnd& end) {
  ++undescribed_;
  actions_.push_back(DescribeFailure{assignment_, end});
}

void AgentCore::Fail(const WorkerEnd& end) {
  own_failure_ = end;
  is_failure_answered_ = false;
  // The first failure is the cause, and this one had begun before the others. So it had if they say
  // that they have lost a peer, and this one does not.
  const bool was_ending = ending_ && ending_->contains(end.local_rank);
  for (Suspicion& suspicion : suspicions_) {
    const bool follows = was_ending || (suspicion.end.tells_lost_peer && !end.may_follow());
    if (follows) suspicion.end.at = end.at + kBehind;
  }
  suspicions_.insert(suspicions_.begin(), {end, now_});  // one no more: Stop reports them
  Stop(kSigTerm);
}

bool AgentCore::IsFollowerSuspected() const {
  return std::ranges::any_of(suspicions_,
                             [](const Suspicion& known) { return known.end.may_follow(); });
}

void AgentCore::SuspectFollower(const WorkerEnd& end) {
  const bool is_first = !IsFollowerSuspected();
  suspicions_.push_back({end, now_ + policy_.ending_patience, now_});
  if (is_first) {
    ending_.reset();
    actions_.push_back(LookForEnding{assignment_});
  }
}

void AgentCore::AwaitEnding() {
  ending_by_ = now_ + policy_.ending_patience;
  if (IsFollowerSuspected()) return ReviewFollowers();  // it has looked, or its look is under way
  ending_.reset();
  actions_.push_back(LookForEnding{assignment_});
}

void AgentCore::EndWhileAwaiting(const WorkerEnd& end) {
  if (ending_) return own_ends_.push_back(end);  // a consequence, as after a stop
  // It ended before it was looked at, and may be the cause: its report says so.
  if (!own_failure_) own_failure_ = end;
  Describe(end);
}

void AgentCore::On(const EndingFound& event) {
  if (event.assignment != assignment_ || state_ != State::kRunning) return;
  ending_ = event.local_ranks;
  ReviewFollowers();
}

void AgentCore::ReviewFollowers() {
  const bool is_any_ending =
      !ending_ || std::ranges::any_of(*ending_, [this](int rank) { return live_.contains(rank); });
  if (is_any_ending && !live_.empty()) return;
  if (ending_by_) return Stop(kSigTerm);
  for (Suspicion& suspicion : suspicions_) {
    if (!suspicion.end.may_follow()) continue;
    const bool is_hopeful = suspicion.end.tells_lost_peer && !live_.empty();
    suspicion.judge_at = is_hopeful ? suspicion.since + policy_.unseen_patience : now_;
  }
  JudgeSuspicions();
}

void AgentCore::JudgeSuspicions() {
  const auto due = std::ranges::find_if(
      suspicions_, [this](const Suspicion& known) { return known.judge_at <= now_; });
  if (due == suspicions_.end()) return;
  const Suspicion first = *due;
  suspicions_.erase(due);
  if (state_ == State::kRunning) Fail(first.end);
}

void AgentCore::On(const FailureDescribed& event) {
  if (event.assignment != assignment_ || undescribed_ == 0) return;
  --undescribed_;
  rendezvous::FailureReport report = event.report;
  const bool is_blaming = report.left_peer.has_value();
  const bool was_ending = ending_ && ending_->contains(event.end.local_rank);
  // What a handler of our stop's signal raises is no cause.
  const bool says_why = report.has_own_cause && !event.end.was_told_to_stop;
  report.has_own_cause = !is_blaming && (was_ending || says_why);
  // The failure that is ours if nobody names another.
  if (is_peer_blamed_ && !is_blaming && !end_ && !verdict_) own_failure_ = event.end;
  const bool is_ours = own_failure_ && own_failure_->local_rank == event.end.local_rank;
  if (is_ours) {
    failure_news_ = FailureNews{
        .report = report, .tell_at = now_ + policy_.failure_notice_delay, .is_heard = is_drained_};
  }
  if (!end_ && !verdict_) {
    actions_.push_back(ReportFailure{assignment_.round, report, event.end.at});
    if (is_ours) TellOfFailure();
    if (!contact_.lost_since && HasWorkers() && !HasBudget() && !notice_) {
      notice_ =
          Notice{absl::StrCat("rank ", report.rank, " failed: ", rendezvous::CauseText(report)),
                 kill_at_, now_ + policy_.stopping_notice_delay, is_ours};
    }
    if (is_blaming && !is_peer_blamed_) {
      is_peer_blamed_ = true;
      for (const WorkerEnd& end : std::exchange(own_ends_, {})) Describe(end);
    }
  }
  if (state_ == State::kStopping && !HasWorkers()) GoOn();
}

TimePoint AgentCore::FailureNoticeAt() const {
  constexpr TimePoint kNever = TimePoint::max();
  const bool is_over = end_ || verdict_;
  if (!failure_news_ || failure_news_->is_told || failure_news_->is_passed || is_over)
    return kNever;
  return contact_.lost_since ? now_ : failure_news_->tell_at;
}

void AgentCore::TellOfFailure() {
  if (FailureNoticeAt() > now_) return;
  failure_news_->is_told = true;
  const rendezvous::FailureReport& report = failure_news_->report;
  Tell("rank ", report.rank, " failed: ", rendezvous::CauseText(report), "; ", Coordinator(),
       contact_.lost_since       ? " hears of it when it answers again"
       : failure_news_->is_heard ? " has not told the end of the job yet"
                                 : " has not answered to that yet");
}

void AgentCore::PlanEndOfTrouble(int exit_code, const std::string& message) {
  if (!own_failure_) {
    end_ = EndJob{exit_code, ExitOwner::kDdprun, message};
    Tell("error: ", message);
    return;
  }
  // A worker of ours failed, and its failure will not be named by the job any more: it is the end.
  end_ = EndJob{own_failure_->exit_code, ExitOwner::kWorker, message};
  Tell("error: ", message, "; ending with the code of local rank ", own_failure_->local_rank,
       ", whose end was: ", own_failure_->message);
}

void AgentCore::LeaveStopped() {
  // The job had failed before the signal: what failed first is what the user wants to know.
  if (verdict_ && verdict_->first_failure && end_->owner == ExitOwner::kSignal) {
    rendezvous::Verdict report = *verdict_;
    report.exit_code = end_->exit_code;
    report.reason = end_->reason;
    actions_.push_back(PrintReport{std::move(report)});
  }
  Leave();
}

void AgentCore::ReportOwnFailure() {
  if (verdict_ || !own_failure_ || !failure_news_) return;
  const bool is_stopped = end_->owner == ExitOwner::kSignal || end_->owner == ExitOwner::kStopped;
  const bool is_wanted = is_stopped && !failure_news_->is_passed;
  if (!is_wanted && end_->owner != ExitOwner::kWorker) return;
  actions_.push_back(
      PrintReport{rendezvous::Verdict{end_->exit_code, end_->reason, failure_news_->report}});
}

}  // namespace ddprun::launcher
