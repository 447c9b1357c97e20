// What is said and heard over a link, what is told of waits, and the end of contact.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/client/contact_core.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {
namespace {

// To a host that is down attempts fail by turns: by a timeout, and as there is no route.
constexpr Duration kTellAgain = std::chrono::seconds(60);

}  // namespace

void ContactCore::On(const JoinCommand& command) {
  record_.Join(command.node);
  joined_at_ = now_;
}

void ContactCore::On(const ReportCommand& command) {
  record_.Report(command.round, command.fact, command.at);
}

void ContactCore::On(const LeaveCommand& command) {
  // Where workers are started once, the others end with the verdict that this leaving makes.
  const Policy& policy = options_.policy;
  others_wait_ |= record_.is_assigned() && policy.max_restarts == 0 &&
                  policy.min_nodes == policy.max_nodes && policy.max_nodes > 1;
  record_.Leave(command.reason, command.is_by_signal);
}

void ContactCore::On(const AckCommand&) {
  record_.AckVerdict();
  others_wait_ = true;
}

void ContactCore::On(const AskCommand& command) {
  if (command.question.body.size() > kMaxQuestionBytes) return;
  SayAside(QuestionAsked{{}, command.question});
}

void ContactCore::On(const AnswerCommand& command) {
  // One that is too large would end the link, and with it this node's part in the job.
  if (command.body.size() > kMaxAnswerBytes) return;
  SayAside(AnswerGiven{{}, command.id, command.body});
}

void ContactCore::SayAside(Event aside) {
  if (state_ != State::kLinked || asides_.size() >= kMaxAsides) return;
  asides_.push_back(std::move(aside));
}

void ContactCore::On(const HealthCommand& command) {
  record_.NoteHealth(command.report);
  SayAside(HealthChecked{{}, command.report});
}

void ContactCore::On(const StopCommand& command) { record_.OrderStop(command.how, command.reason); }

void ContactCore::On(const EndCommand& command) {
  const TimePoint end_by = now_ + command.timeout;
  end_by_ = end_by_ ? std::min(*end_by_, end_by) : end_by;
}

void ContactCore::Link() {
  state_ = State::kLinked;
  is_local_ = is_hosting_;
  has_contact_ = false;
  is_saying_ = false;
  is_closing_ = false;
  last_heard_ = now_;
  next_beat_ = now_;
  round_trips_.clear();
  asides_.clear();
  Do(OpenLink{is_local_});
}

void ContactCore::Talk() {
  if (!is_local_ && now_ >= last_heard_ + silence_limit()) {
    Do(CloseLink{});
    const auto limit = std::chrono::duration_cast<std::chrono::seconds>(silence_limit()).count();
    return Break(absl::StrCat("the coordinator has not answered for ", limit, " s"));
  }
  if (is_saying_ || is_closing_) return;
  if (std::optional<Event> event = record_.NextToSay(now_)) {
    if (auto* joined = std::get_if<NodeJoined>(&*event))
      joined->node.is_endpoint_node = is_local_ && !IsElected();
    // The shortest round trip: the others also waited in some queue.
    const auto trip = std::min_element(round_trips_.begin(), round_trips_.end());
    is_saying_ = true;
    Do(SayEvent{.event = *std::move(event),
                .round_trip = trip == round_trips_.end() ? Duration{0} : *trip});
  } else if (!asides_.empty() && !end_by_) {
    Event aside = std::move(asides_.front());
    asides_.pop_front();
    std::visit(
        [this](auto& any) {
          if constexpr (requires { any.stamp; }) any.stamp = record_.stamp();
        },
        aside);
    is_saying_ = true;
    Do(SayEvent{.event = std::move(aside)});
  } else if (end_by_) {
    is_closing_ = true;
    Do(CloseLink{.is_polite = true});
  } else if (now_ >= next_beat_) {
    next_beat_ = now_ + beat_interval_;
    // One beat alone is no proof: life was shown since the last one, or the process did not run.
    constexpr Duration kMostOfBeat = 2 * RendezvousClient::kLifeInterval;
    static_assert(kMostOfBeat < kLifePatience);
    const Duration of_beat = std::min(beat_interval_, kMostOfBeat);
    if (lifeless_for_) *lifeless_for_ += std::min<Duration>(now_ - beat_said_at_, of_beat);
    beat_said_at_ = now_;
    is_saying_ = true;
    Do(SayEvent{.event = HeartbeatReceived{record_.stamp(), IsStuck()}, .sequence = ++sequence_});
  }
}

void ContactCore::On(const Said&) { is_saying_ = false; }

void ContactCore::On(const BeatAnswered& answer) {
  if (state_ != State::kLinked) return;
  HearMachine();
  MakeContact();
  if (answer.interval > Duration{0}) BeatEvery(answer.interval);
  if (answer.sequence != sequence_) return;  // of a beat that was overtaken
  round_trips_.push_back(now_ - beat_said_at_);
  if (round_trips_.size() > 8) round_trips_.pop_front();
}

void ContactCore::BeatEvery(Duration interval) {
  beat_interval_ = std::max(std::min(interval, options_.longest_beat), kMinBeatInterval);
  next_beat_ = beat_said_at_ + beat_interval_;
}

void ContactCore::On(const Heard& heard) {
  if (state_ != State::kLinked) return;
  HearMachine();
  Action action = heard.action;
  if (auto* refusal = std::get_if<Refuse>(&action)) {
    if (!misfit_.empty()) return Fail(misfit_);
    if (refusal->kind != Refusal::kFinal && refusal->kind != Refusal::kBadNode) {
      record_.Hear(heard.instance, action);
      return HearOfOtherJob(*refusal);
    }
    if (refusal->kind == Refusal::kFinal) NameSpeaker(*refusal);
  }
  MakeContact();
  const std::optional<RendezvousEvent> event = record_.Hear(heard.instance, action);
  if (!event) return;
  if (const auto* failed = std::get_if<RendezvousFailed>(&*event)) {
    return Fail(failed->message, failed->kind);
  }
  if (std::holds_alternative<Assigned>(*event)) is_ending_ = false;
  Tell(*event);
}

void ContactCore::NameSpeaker(Refuse& refusal) const {
  if (!is_local_) {
    refusal.message =
        absl::StrCat("the coordinator at ", Place(), " ends the wait: ", refusal.message);
  } else if (HasPort()) {
    refusal.message = absl::StrCat("the rendezvous at ", Place(), ": ", refusal.message);
  }
}

void ContactCore::HearOfOtherJob(const Refuse& refusal) {
  Do(CloseLink{});
  if (record_.is_assigned()) {
    LoseContact({.reason = refusal.message, .is_gone = true, .is_lasting = true});
    return SeekAgain();
  }
  is_ending_ = true;
  trouble_ = refusal.message;
  if (refusal.kind == Refusal::kRankHeld) {
    TellWait(trouble_, absl::StrCat("waiting: ", trouble_));
  } else {
    TellWait(trouble_, absl::StrCat(JobText(options_.policy.run_id), " at ", Place(),
                                    " is ending; waiting for the next one"));
  }
  SeekAgain();
  tries_host_ = MayHost() && !IsElected();
}

void ContactCore::TellWait(const std::string& text, const std::string& reason) {
  if (text == told_) return;
  std::erase_if(told_at_, [&](const auto& told) { return now_ - told.second >= kTellAgain; });
  // A look that lasts is told whenever it is due.
  if (told_at_.contains(text) && text != kLongLookText) return;
  told_ = text;
  told_at_[text] = now_;
  Tell(Waiting{reason, GiveUpAt()});
}

void ContactCore::MakeContact() {
  if (std::exchange(has_contact_, true)) return;
  if (!is_local_) took_refused_place_ = false;
  const bool is_other_leader = std::exchange(made_leader_, leader_) != leader_;
  if (!std::exchange(had_contact_, true) || is_other_leader) Tell(ContactMade{Place(ip_), false});
  backoff_.Reset();
  told_.clear();
  told_at_.clear();
  misfit_.clear();
  if (std::exchange(loss_, std::nullopt)) Tell(ContactRestored{});
}

void ContactCore::LoseContact(ContactLost loss) {
  if (!had_contact_) return;
  if (WatchesMachine() && UnansweredAt() && now_ >= *UnansweredAt()) {
    loss.unanswered_for = options_.policy.evict_after;
    loss.reason = absl::StrCat("its machine has answered neither data nor connections for ",
                               DurationText(loss.unanswered_for));
  }
  const bool is_news = !loss_ || loss.is_gone != loss_->is_gone ||
                       loss.is_lasting != loss_->is_lasting ||
                       loss.unanswered_for != loss_->unanswered_for;
  if (!loss_) without_contact_since_ = now_;
  loss_ = loss;
  if (is_news) Tell(loss);
}

bool ContactCore::WatchesMachine() const {
  const bool is_elsewhere = !is_hosting_ && !is_apart_ && !IsElected();
  const bool is_under_way = state_ == State::kSeeking || state_ == State::kLinked;
  return is_elsewhere && is_under_way && !end_by_ && had_contact_ && record_.had_round();
}

void ContactCore::HearMachine() {
  last_heard_ = answered_at_ = now_;
  is_unanswered_ = false;
  next_watch_ = kFirstWatch;
}

void ContactCore::NoteAnswer(const Looked& look) {
  switch (look.outcome) {
    case Outcome::kUnreachable:
      is_unanswered_ = is_unanswered_ || look.is_unanswered;
      return;
    case Outcome::kNoName:
    case Outcome::kNameLater:
    case Outcome::kFound:
    case Outcome::kVacant:
    case Outcome::kBarred:
      return;               // of a resolver
    case Outcome::kSilent:  // the kernel connected for a process that says nothing: at first
      answered_at_ = std::max(answered_at_, errand_since_);
      break;
    case Outcome::kOurs:
    case Outcome::kOtherRun:
    case Outcome::kOtherRelease:
    case Outcome::kForeign:
    case Outcome::kDistrusted:
    case Outcome::kExpired:
    case Outcome::kClosed:
    case Outcome::kRefused:
      answered_at_ = now_;
      break;
  }
  is_unanswered_ = false;
}

TimePoint ContactCore::KnockAt() const {
  // The other half of the usual evict time is more than a connect may take.
  return std::max(last_heard_, knocked_at_) + options_.policy.evict_after / 2;
}

std::optional<TimePoint> ContactCore::UnansweredAt() const {
  if (!is_unanswered_) return std::nullopt;
  return answered_at_ + options_.policy.evict_after;
}

void ContactCore::JudgeMachine() {
  const bool is_told = loss_ && loss_->unanswered_for > Duration{0};
  if (UnansweredAt() && now_ >= *UnansweredAt() && !is_told) {
    if (state_ == State::kLinked) {
      Do(CloseLink{});
      has_contact_ = false;
      SeekAgain();
    }
    return LoseContact({});
  }
  if (state_ != State::kLinked || errand_ != Errand::kNone || now_ < KnockAt()) return;
  // The connections of a machine that is gone look alive for a while.
  errand_ = Errand::kLook;
  errand_since_ = knocked_at_ = now_;
  Do(LookAtEndpoint{.port = Port(), .is_at_link = true});
}

void ContactCore::On(const LinkEnded& end) {
  if (state_ != State::kLinked) return;
  if (end.is_final && !end_by_ && !record_.is_over()) {
    state_ = State::kOver;
    return Fail(absl::StrCat("the coordinator at ", Place(), " ", end.text));
  }
  Break(end.text);
}

void ContactCore::Break(const std::string& reason) {
  const bool had_contact = std::exchange(has_contact_, false);
  state_ = State::kOver;
  if (end_by_ || record_.is_over()) return;
  if (!misfit_.empty()) return Fail(misfit_);
  if (is_local_ && !is_stopping_host_) {
    // As all who are stuck it was lost, and comes back once it works.
    if (IsStuck()) return Find();
    return Fail("the coordinator of this process has stopped");
  }
  state_ = State::kSeeking;
  // What broke after contact is looked into by the next attempt.
  if (!had_contact) return JudgeAttempt(Looked{.outcome = Outcome::kUnreachable, .text = reason});
  LoseContact({.reason = reason});
  SeekAgain();
  goes_back_ = !IsElected();
  // It comes back at once, and stands for the place of a leader that is gone in its turn.
  if (IsElected()) turn_at_ = now_ + TurnAfter();
}

void ContactCore::End() {
  if (state_ == State::kEnded) return;
  const bool is_late = now_ >= *end_by_;
  if (state_ == State::kLinked) {
    if (!is_late) return;  // what was said is on its way
    Do(CloseLink{});
  }
  state_ = State::kOver;
  if (is_hosting_) {
    if (others_wait_ && !is_stopping_host_ && !is_late) return;
    StopHost();
    if (!is_late) return;
  }
  state_ = State::kEnded;
  Tell(ContactEnded{});
}

}  // namespace ddprun::rendezvous
