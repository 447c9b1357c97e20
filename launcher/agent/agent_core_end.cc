// The core's way out: a coordinator that is lost, a signal, and the last state, kLeaving.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/agent/agent_core.h"
#include "launcher/process/exit_status.h"
#include "rendezvous/core/text.h"

namespace ddprun::launcher {
namespace {

using rendezvous::DurationText;
using rendezvous::SecondsLeft;
using rendezvous::StopHow;

// Linux's numbers; <csignal> is no header for pure code.
constexpr int kSigInt = 2;
constexpr int kSigQuit = 3;
constexpr int kSigTerm = 15;

// A busy node hears of its worker's end and of the coordinator's in either order.
constexpr Duration kSameMoment = std::chrono::seconds(1);

// A coordinator that runs has answered a new call by then.
constexpr Duration kAnswerTime = std::chrono::seconds(5);

constexpr TimePoint kNever = TimePoint::max();

// ", which was waiting for 1 more", by the words in which the wait is told.
std::string WaitedText(const std::string& reason) {
  const size_t at = reason.find("waiting ");
  return at == std::string::npos ? absl::StrCat(" (", reason, ")")
                                 : absl::StrCat(", which was ", reason.substr(at));
}

}  // namespace

void AgentCore::Succeed() {
  state_ = State::kSucceeded;
  // From here on this node waits for another reason, and longer.
  contact_.is_told = false;
  contact_.until = now_ + policy_.exit_barrier_timeout;
  using rendezvous::StopRead;
  const StopRead if_read = !stop_asked_by_.empty() ? StopRead::kToEnd
                           : is_asked_to_scale_up_ ? StopRead::kToScaleUp
                                                   : StopRead::kNo;
  actions_.push_back(ReportSuccess{assignment_.round, if_read});
}

void AgentCore::On(const rendezvous::ContactMade& event) {
  had_contact_ = true;
  // Whoever had the port that is ours now is gone.
  if (event.is_hosted_here && contact_.lost_since && assignment_.coordinator_is_member) {
    contact_.gone_at = now_;
    TellOfGoneNode();
    loss_ = LossText();
  }
  // With etcd another agent's coordinator has its round.
  const bool takes_over = IsInRound() && contact_.lost_since && !assignment_.coordinator_is_member;
  const std::string loss = takes_over && !contact_.is_told ? LossText() + "; " : "";
  coordinator_place_ = event.place;
  if (event.is_hosted_here && IsOverWithCoordinator()) return CheckContact();
  if (!event.is_hosted_here || (!contact_.is_told && !takes_over)) return;
  if (contact_.is_told) contact_ = Contact{};
  Tell(loss, "this node serves the rendezvous at ", event.place, " now");
}

void AgentCore::On(const rendezvous::ContactLost& event) {
  contact_.reason = event.reason;
  // Who answers in its place, or whose certificate has expired, is worth a line of its own.
  if (event.is_lasting && !std::exchange(contact_.is_lasting, true)) contact_.is_told = false;
  contact_.is_expired = event.is_lasting && !event.is_gone;
  if (!contact_.lost_since) contact_.lost_since = now_;
  contact_.unanswered_since.reset();
  if (event.unanswered_for > Duration{0}) {
    contact_.unanswered_since = now_ - event.unanswered_for;
    contact_.gone_at = now_;  // it had the evict time
  } else if (!event.is_gone) {
    contact_.gone_at.reset();
  } else if (!contact_.gone_at) {
    contact_.gone_at = now_ + policy_.gone_grace;
  }
  if (ordered_) On(*std::exchange(ordered_, std::nullopt));
  TellOfFailure();
  if (state_ != State::kLeaving) CheckContact();
}

void AgentCore::On(const rendezvous::ContactRestored&) {
  const bool is_news = contact_.is_told && state_ != State::kLeaving;
  contact_ = Contact{};
  if (is_news) Tell(Coordinator() + " is back");
}

std::string AgentCore::Coordinator() const {
  return coordinator_place_.empty() ? "the coordinator"
                                    : absl::StrCat("the coordinator at ", coordinator_place_);
}

std::string AgentCore::LossText() const {
  return absl::StrCat(Coordinator(), " was lost (", contact_.reason, ")");
}

TimePoint AgentCore::ContactDeadline() const {
  if (!contact_.lost_since || verdict_) return kNever;
  if (state_ == State::kSucceeded) {
    const TimePoint barrier =
        std::max(*contact_.lost_since + policy_.exit_barrier_timeout, contact_.until);
    return IsOverWithCoordinator() ? std::min(barrier, *contact_.gone_at) : barrier;
  }
  // Joining: the client keeps the time.
  if (state_ != State::kRunning && state_ != State::kPreparing) {
    return IsOverWithCoordinator() ? *contact_.gone_at : kNever;
  }
  // Where a certificate has expired the coordinator waits in vain, and goes on without this node.
  const Duration patience = contact_.is_expired
                                ? std::min(policy_.orphan_timeout, policy_.evict_after)
                                : policy_.orphan_timeout;
  const TimePoint deadline = std::max(*contact_.lost_since + patience, contact_.until);
  return IsCoordinatorGone() ? std::min(deadline, *contact_.gone_at) : deadline;
}

std::string AgentCore::GoneText() const {
  return absl::StrCat(Coordinator(), " is lost: ", contact_.reason,
                      contact_.unanswered_since ? ";" : "; its process is gone, and",
                      " with it the ranks of node ", assignment_.coordinator_node,
                      contact_.unanswered_since ? " are gone; " : "; ");
}

TimePoint AgentCore::GoneNoticeAt() const {
  const bool is_told = !loss_.empty() || assignment_.round == Round{};
  const bool is_ending = end_ || verdict_ || IsOverWithCoordinator();
  if (state_ != State::kJoining || is_told || is_ending || !IsCoordinatorGone()) return kNever;
  return *contact_.gone_at;
}

void AgentCore::TellOfGoneNode() {
  if (GoneNoticeAt() > now_) return;
  contact_.is_told = true;
  loss_ = LossText();
  Tell(GoneText(), "waiting for it to come back");
}

TimePoint AgentCore::LostNoticeAt() const {
  if (!contact_.lost_since || contact_.is_told || !IsInRound() || verdict_) return kNever;
  return *contact_.lost_since + policy_.lost_notice_delay;
}

void AgentCore::TellOfLostContact() {
  if (LostNoticeAt() > now_) return;
  contact_.is_told = true;
  // The job may have succeeded as a whole: the coordinator's last words may be what was lost.
  const std::string done =
      IsCoordinatorGone()
          ? absl::StrCat("; its process is gone, and with it what node ",
                         assignment_.coordinator_node,
                         " had not finished; all workers of this node succeeded, so it ends with 0 "
                         "if no coordinator of the job comes within ")
          : "; all workers of this node succeeded, waiting for it up to ";
  Tell(Coordinator(), " is lost: ", contact_.reason,
       state_ == State::kSucceeded ? done : "; this node's workers go on without it up to ",
       DurationText(ContactDeadline() - now_));
}

bool AgentCore::IsOverWithCoordinator() const {
  const bool is_once = assignment_.max_restarts == 0 && policy_.min_nodes == policy_.max_nodes;
  const bool is_ending = end_ || verdict_ || state_ == State::kLeaving || state_ == State::kDone;
  const bool has_begun = assignment_.round != Round{};  // a spare takes the job over
  return IsCoordinatorGone() && has_begun && is_once && !is_ending;
}

void AgentCore::CheckContact() {
  TellOfGoneNode();
  if (ContactDeadline() > now_) return TellOfLostContact();
  // Who comes so late did not run, and has not called since.
  if (now_ - ContactDeadline() > kSameMoment) {
    contact_.until = now_ + kAnswerTime;
    if (contact_.gone_at) contact_.gone_at = contact_.until;
    return TellOfLostContact();
  }
  contact_.is_told = true;
  const std::string lost = Coordinator() + " is lost: ";
  const bool is_gone = IsCoordinatorGone() && *contact_.gone_at <= now_;
  if (state_ == State::kSucceeded && !IsOverWithCoordinator()) {
    Tell(lost, contact_.reason,
         "; all workers of this node succeeded, so it ends with 0 without the job's verdict");
    end_ = EndJob{kExitSuccess, ExitOwner::kNobody,
                  "lost the coordinator after all workers succeeded"};
  } else if (is_gone) {
    loss_ = LossText();
    const std::string gone = GoneText();
    if (IsOverWithCoordinator()) {
      PlanEndOfTrouble(kExitRendezvous, absl::StrCat(gone, "no restarts allowed (--max-restarts=0)",
                                                     TakeAnsweredFailure()));
    } else {
      Tell(gone, "stopping this node's workers and waiting for it to come back");
    }
  } else {
    std::string why = absl::StrCat("no word from it for ", DurationText(policy_.orphan_timeout));
    if (contact_.is_expired) why = contact_.reason;
    const int code = contact_.is_expired ? kExitAuthentication : kExitLostCoordinator;
    end_ = EndJob{code, ExitOwner::kDdprun, lost + why};
    Tell("error: ", end_->reason, "; stopping the workers");
  }
  Stop(kSigTerm);
}

std::string AgentCore::TakeAnsweredFailure() {
  if (own_failure_ && IsCoordinatorGone()) {
    // What failed before is the cause; what failed later failed of this.
    const TimePoint loss = contact_.unanswered_since.value_or(*contact_.lost_since);
    is_failure_answered_ = is_failure_answered_ || own_failure_->at + kSameMoment >= loss;
  }
  if (!own_failure_ || !is_failure_answered_) return "";
  const WorkerEnd end = *std::exchange(own_failure_, std::nullopt);
  return absl::StrCat("; of this node local rank ", end.local_rank, " ended too: ", end.message);
}

std::string AgentCore::AfterLoss(const std::string& message) const {
  return loss_.empty() ? message : absl::StrCat(loss_, "; ", message);
}

void AgentCore::On(const StopAsked& event) {
  if (state_ == State::kLeaving || !stop_asked_by_.empty()) return;
  stop_asked_by_ = event.why;
  if (!LeavePreempted()) actions_.push_back(AskToStop{event.why});
}

// There is nothing to save, and who asks may end this node before a round forms.
bool AgentCore::LeavePreempted() {
  const bool is_idle = state_ == State::kJoining && !end_ && !verdict_;
  const std::string& why = stop_asked_by_;
  if (why.empty() || !is_idle || !policy_.requeue_code || is_stop_by_user_) return false;
  const std::string waited = notice_ ? WaitedText(notice_->reason) : "";
  end_ = EndJob{*policy_.requeue_code, ExitOwner::kRequeue,
                absl::StrCat(why, " came while no worker ran on this node (--requeue-code)")};
  Tell(why, ": leaving ", policy_.job, waited, ", with exit code ", end_->exit_code,
       " (--requeue-code)");
  actions_.push_back(LeaveJob{end_->reason, true});
  Leave();
  return true;
}

void AgentCore::AskToScaleUp(const std::string& why) {
  const bool runs = state_ == State::kPreparing || state_ == State::kRunning;
  if (!runs || end_ || verdict_ || !stop_asked_by_.empty() || is_asked_to_scale_up_) return;
  is_asked_to_scale_up_ = true;
  actions_.push_back(AskToStop{why, true});
}

void AgentCore::On(const rendezvous::StopRequested& event) {
  if (event.is_to_scale_up) return AskToScaleUp(event.reason);
  is_stop_by_user_ = is_stop_passed_on_ = true;
  if (ordered_ && ordered_->how == StopHow::kAfterStep) {
    ordered_.reset();
    AnswerOrder(true);
  }
  On(StopAsked{event.reason});
}

void AgentCore::AnswerOrder(bool is_after_step, std::string trouble) {
  const bool is_in_vain = verdict_ && !(is_after_step ? is_stop_passed_on_ : IsStopOf(*verdict_));
  actions_.push_back(
      AnswerStop{is_after_step, std::move(trouble), is_in_vain ? verdict_->reason : ""});
}

void AgentCore::On(const StopOrder& event) {
  const bool is_after_step = event.how == StopHow::kAfterStep;
  const bool is_ending = end_ || verdict_;
  // Its other nodes have heard of the end, and hear no more of this job.
  if (event.how == StopHow::kNow && is_ending) {
    Kill(event.reason);
    return AnswerOrder(false, assignment_.node_count == 1
                                  ? ""
                                  : "the job is ending, so only this node's ranks are killed");
  }
  if (verdict_ && state_ == State::kSucceeded && !is_after_step) {
    Tell(event.reason, ": stopping what the workers left");
    Stop(kSigTerm);
  }
  if (verdict_ || (is_after_step && is_stop_passed_on_)) return AnswerOrder(is_after_step);
  if (end_) {
    return AnswerOrder(is_after_step,
                       absl::StrCat("this node is ending by itself: ", end_->reason));
  }
  const OrderStop order{event.how, event.reason};
  if (had_contact_ && !contact_.lost_since) {
    // No later one takes an end back that was ordered.
    if (!ordered_ || ordered_->how < event.how) ordered_ = event;
    actions_.push_back(order);
    return;
  }
  // Nobody would pass it on.
  AnswerOrder(is_after_step, Coordinator() + " does not answer");
  if (is_after_step) {
    is_stop_by_user_ = true;
    actions_.push_back(order);  // in case that it answers after all
    return On(StopAsked{event.reason});
  }
  end_ = EndJob{rendezvous::kStoppedExitCode, ExitOwner::kStopped,
                absl::StrCat("stopped by ", event.reason)};
  Tell(end_->reason, "; ", Coordinator(), " does not answer, so other nodes may not hear of it");
  // In case that it does hear of this one's end, it hears why.
  actions_.push_back(order);
  actions_.push_back(LeaveJob{end_->reason});
  if (!HasWorkers()) return LeaveStopped();
  Stop(kSigTerm);
  if (event.how == StopHow::kNow) Kill(event.reason);
}

void AgentCore::Kill(const std::string& why) {
  if (!HasWorkers()) return;
  const std::string live = LiveRanks();
  Tell(why, ": killing ", live.empty() ? "what the workers left" : live, " now");
  actions_.push_back(KillWorkers{});
}

void AgentCore::On(const SignalReceived& event) {
  if (event.is_again) return HearAgain(event);
  suspicions_.clear();
  if (state_ == State::kLeaving) return Hurry(event.is_kill);
  // What failed in that moment has failed of the signal, which came to the workers, too.
  const bool is_recent = own_failure_ && now_ - own_failure_->at < policy_.own_signal_window;
  if (!end_ && is_recent) own_failure_.reset();
  EndJob stopped{kExitSignalBase + event.signal, ExitOwner::kSignal,
                 absl::StrCat("stopped by ", SignalName(event.signal))};
  // Its other nodes have heard of the success, and may have left with it.
  const bool has_succeeded = verdict_ && verdict_->exit_code == kExitSuccess;
  if (has_succeeded) stopped = EndJob{kExitSuccess, ExitOwner::kNobody, verdict_->reason};
  if (event.is_kill && HasWorkers() && ++kill_signals_ == 1) return Kill(SignalName(event.signal));
  if (event.is_kill && HasWorkers()) {
    Tell("ending although processes of this job have not died yet");
    if (!end_) end_ = stopped;
    return Leave();
  }
  // Told as well when the workers are being stopped already: the signal ends what would follow.
  const bool is_news = !end_ || state_ != State::kStopping;
  if (!end_) {
    end_ = stopped;
    if (!has_succeeded) actions_.push_back(LeaveJob{stopped.reason, true});
  }
  if (!HasWorkers()) {
    if (state_ == State::kJoining && notice_) {
      Tell(SignalName(event.signal), ": leaving ", policy_.job, WaitedText(notice_->reason));
    }
    return LeaveStopped();
  }
  if (is_news) SayStopping(event);
  Stop(event.signal, event.may_be_for_all);
  if (is_news && state_ == State::kStopping && !notice_) {
    notice_ = Notice{SignalName(event.signal), kill_at_, now_ + policy_.stopping_notice_delay};
  }
}

void AgentCore::SayStopping(const SignalReceived& event) {
  const std::string live = LiveRanks();
  const bool is_by_hand = event.is_of_terminal && event.signal == kSigInt;
  const char* how = event.is_again             ? "one more"
                    : is_by_hand               ? "Ctrl-C again"
                    : event.signal == kSigQuit ? "`ddprun stop --now`"
                                               : "SIGQUIT or `ddprun stop --now`";
  Tell(SignalName(event.signal), event.is_again ? ": still stopping " : ": stopping ",
       live.empty() ? "what the workers left" : live, "; SIGKILL comes in ",
       SecondsLeft(GraceLeft()), " s; ", how, " kills ", live_.size() == 1 ? "it" : "them", " now");
  told_stopping_at_ = now_;
}

// Who passes an order on does so at once, and needs no answer.
void AgentCore::HearAgain(const SignalReceived& event) {
  const bool is_asked_anew = !told_stopping_at_ || now_ - *told_stopping_at_ >= kSameMoment;
  if (state_ == State::kStopping && HasWorkers() && is_asked_anew) SayStopping(event);
}

std::string AgentCore::LiveRanks() const {
  std::vector<int> ranks;
  for (const int local_rank : live_) ranks.push_back(assignment_.first_rank + local_rank);
  return ranks.empty() ? "" : RanksText(ranks);
}

void AgentCore::On(const HangJudged& event) {
  if (state_ != State::kRunning && state_ != State::kSucceeded) return;
  if (event.round != assignment_.round || verdict_) return;
  actions_.push_back(ReportFailure{assignment_.round, event.report, now_});
  // What hangs has been told.
  Tell("--on-hang=restart: stopping the ranks", HasBudget() ? " to start them again" : "");
  Stop(kSigTerm);
}

void AgentCore::LeaveWithVerdict() {
  if (IsStopOf(*verdict_)) {
    end_ = EndJob{verdict_->exit_code, ExitOwner::kStopped, verdict_->reason};
    Tell(verdict_->reason, ": exit code ", verdict_->exit_code);
    return Leave();
  }
  if (assignment_.round == Round{} && verdict_->exit_code == 0) {
    Tell(policy_.job,
         " has ended well; this node stood by as a spare and ran nothing; for a job of "
         "its own, give it another --rdzv-endpoint and an --rdzv-id");
  }
  const bool is_own = verdict_->exit_code != 0 && !verdict_->first_failure;
  if (is_own) verdict_->reason = AfterLoss(verdict_->reason);
  end_ = EndJob{verdict_->exit_code,
                verdict_->exit_code == 0            ? ExitOwner::kNobody
                : rendezvous::IsOfWorker(*verdict_) ? ExitOwner::kWorker
                                                    : ExitOwner::kDdprun,
                verdict_->reason};
  if (verdict_->exit_code != 0) actions_.push_back(PrintReport{*verdict_});
  Leave();
}

void AgentCore::Leave() {
  const bool is_by_user = is_stop_by_user_ || end_->owner == ExitOwner::kStopped;
  if (policy_.requeue_code && have_read_stop_ && !is_by_user) {
    end_ = EndJob{
        *policy_.requeue_code, ExitOwner::kRequeue,
        absl::StrCat("graceful stop by ", SignalName(policy_.preempt_signal), " (--requeue-code)")};
    Tell("exit code ", end_->exit_code, ": ", end_->reason);
  }
  ReportOwnFailure();
  EndHealthCheck();
  state_ = State::kLeaving;
  // Workers that do not die are still the worker group's: it may not be destroyed in peace.
  leaving_ = Leaving{.by = now_ + policy_.leave_timeout, .is_clean = !HasWorkers()};
  notice_ = Notice{"waiting until the job's other nodes have heard of its end",
                   now_ + kContactTimeout, now_ + policy_.stopping_notice_delay};
  actions_.push_back(*end_);
}

void AgentCore::On(const LeftoversGone& event) {
  if (state_ != State::kLeaving) return;
  leaving_.are_leftovers_gone = event.are_all_gone;
  if (!event.are_all_gone) {
    Tell("processes of this job are left that do not die: the kernel keeps them");
  }
  DrainWhenAnswered();
}

void AgentCore::On(const ReportWritten&) {
  leaving_.is_report_written = true;
  DrainWhenAnswered();
}

void AgentCore::On(const rendezvous::ContactEnded&) {
  leaving_.is_contact_ended = true;
  notice_.reset();
  DrainWhenAnswered();
}

void AgentCore::DrainWhenAnswered() {
  const bool is_answered = leaving_.are_leftovers_gone.has_value() && leaving_.is_report_written &&
                           leaving_.is_contact_ended;
  if (state_ == State::kLeaving && is_answered && !leaving_.is_draining) Drain();
}

void AgentCore::Drain() {
  const Duration timeout = leaving_.is_hasty ? policy_.haste : policy_.console_patience;
  leaving_.is_draining = true;
  leaving_.by = now_ + timeout + policy_.haste;
  actions_.push_back(DrainLogs{timeout, !leaving_.are_leftovers_gone.value_or(false)});
}

void AgentCore::On(const LogsDrained& event) {
  if (state_ != State::kLeaving || !leaving_.is_draining) return;
  leaving_.is_clean = leaving_.is_clean && event.is_all_written;
  Exit();
}

void AgentCore::Hurry(bool is_kill) {
  if (std::exchange(leaving_.is_hasty, true) && is_kill) {
    leaving_.is_clean = false;
    return Exit();
  }
  leaving_.by = std::min(leaving_.by, now_ + policy_.haste);
}

void AgentCore::Exit() {
  state_ = State::kDone;
  actions_.push_back(ExitAgent{end_->exit_code, leaving_.is_clean});
}

std::optional<TimePoint> AgentCore::NextDeadline() const {
  if (state_ == State::kDone) return std::nullopt;
  const TimePoint say_at = notice_ ? notice_->say_at.value_or(kNever) : kNever;
  if (state_ == State::kLeaving) return std::min(leaving_.by, say_at);
  TimePoint deadline =
      std::min({ContactDeadline(), LostNoticeAt(), GoneNoticeAt(), say_at, FailureNoticeAt()});
  for (const Suspicion& known : suspicions_) deadline = std::min(deadline, known.judge_at);
  if (ending_by_) deadline = std::min(deadline, *ending_by_);
  if (check_again_at_) deadline = std::min(deadline, *check_again_at_);
  if (state_ == State::kPreparing) deadline = std::min(deadline, prepared_by_);
  if (state_ == State::kStopping && !HasWorkers() && undescribed_ == 0) {
    deadline = std::min(deadline, verdict_holds_at_.value_or(kNever));
  }
  return deadline == kNever ? std::nullopt : std::optional(deadline);
}

}  // namespace ddprun::launcher
