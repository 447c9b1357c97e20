// Seeking: who is at the endpoint, who hosts, and when to give up.
#include "rendezvous/client/contact_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {
namespace {
using Kind = RendezvousFailed::Kind;

// Who answers is no coordinator of this run.
bool IsStranger(Looked::Outcome outcome) {
  using Outcome = Looked::Outcome;
  return outcome == Outcome::kForeign || outcome == Outcome::kDistrusted ||
         outcome == Outcome::kOtherRun;
}

// Host names do not differ by case, nor by the dot that ends a full one.
std::string Canonical(const std::string& name) {
  return absl::AsciiStrToLower(absl::StripSuffix(name, "."));
}

// Whether this machine hosts, as far as that can be said without asking a resolver; nullopt: only
// the addresses of the endpoint's name can tell.
std::optional<bool> HostsByName(const ContactOptions& options, const std::string& host_name) {
  switch (options.mode) {
    case ContactOptions::Mode::kStandalone:
      return true;
    case ContactOptions::Mode::kStatic:
      return options.node_rank == 0;
    case ContactOptions::Mode::kElected:
      return options.is_host.value_or(true);
    case ContactOptions::Mode::kDynamic:
      break;
  }
  if (options.is_host) return options.is_host;
  const std::string asked = Canonical(options.endpoint_host);
  std::string ours = Canonical(host_name);
  // "node1" is the short name of "node1.cluster"; "node1.a" and "node1.b" are two machines.
  if (asked.find('.') == std::string::npos) ours = ours.substr(0, ours.find('.'));
  if (asked == "localhost" || (!asked.empty() && asked == ours)) return true;
  return std::nullopt;
}

}  // namespace

ContactCore::ContactCore(ContactOptions options, const std::string& host_name, uint32_t seed,
                         TimePoint now)
    : options_(std::move(options)),
      hosts_by_name_(HostsByName(options_, host_name)),
      record_(options_.policy),
      random_(seed),
      attempt_at_(now + backoff_.Next(now, 0)),
      is_name_checked_(options_.local_addr.empty()),
      hosts_(hosts_by_name_.value_or(false)),
      tries_host_(hosts_ && !IsElected()),
      without_contact_since_(now) {
  turn_at_ = now + TurnAfter();
  BeatEvery(std::min(options_.policy.evict_after / 3, kMaxBeatInterval));
}

std::vector<ContactAction> ContactCore::Step(TimePoint now, const ContactEvent& event) {
  now_ = now;
  std::visit([this](const auto& e) { On(e); }, event);
  GoOn();
  return std::exchange(actions_, {});
}

std::optional<TimePoint> ContactCore::NextDeadline() const {
  if (state_ == State::kEnded) return std::nullopt;
  std::optional<TimePoint> next = end_by_;
  const auto at = [&next](TimePoint point) { next = next ? std::min(*next, point) : point; };
  if (state_ == State::kSeeking) {
    if (errand_ == Errand::kNone) at(attempt_at_);
    if (!record_.is_assigned()) {
      at(GiveUpAt());
      if (errand_ == Errand::kLook && told_ != kLongLookText) at(LongLookAt());
    }
  }
  if (state_ == State::kLinked) {
    if (!is_local_) at(last_heard_ + silence_limit());
    if (!is_saying_ && !is_closing_) at(next_beat_);
    if (WatchesMachine() && errand_ == Errand::kNone) at(KnockAt());
  }
  if (WatchAt() && errand_ == Errand::kNone) at(*WatchAt());
  const bool is_told = loss_ && loss_->unanswered_for > Duration{0};
  if (WatchesMachine() && UnansweredAt() && !is_told) at(*UnansweredAt());
  return next;
}

void ContactCore::GoOn() {
  if (WatchesMachine()) JudgeMachine();
  WatchLeader();
  // A join would be a sign of life as well: of an agent that is stuck nobody wants one.
  const bool may_link = !end_by_ && !is_stopping_host_ && !IsStuck();
  if (state_ == State::kFound && record_.has_unsaid() && may_link) Link();
  if (state_ == State::kLinked) Talk();
  if (state_ == State::kSeeking && !end_by_) Seek();
  if (end_by_) End();
}

void ContactCore::Seek() {
  if (!record_.is_assigned() && now_ >= GiveUpAt()) return Fail(GiveUpText());
  if (errand_ == Errand::kLook && now_ >= LongLookAt() && !record_.is_assigned()) {
    TellWait(kLongLookText, WaitText(kLongLookText));
  }
  if (errand_ != Errand::kNone || now_ < attempt_at_) return;
  errand_since_ = now_;
  if (!is_name_checked_) {
    errand_ = Errand::kName;
    Do(CheckLocalName{});
  } else if (std::exchange(tries_host_, false) && MayHost()) {
    took_refused_place_ |= is_leader_refusing_;  // it may get the place and not hear of it
    errand_ = Errand::kHost;
    Do(HostHere{.port = Port(), .is_leader_gone = is_leader_refusing_});
  } else if (std::exchange(goes_back_, false)) {
    // A node has 2 s to come back, and a resolver may take longer.
    errand_ = Errand::kWayBack;
    Do(LookAtEndpoint{.port = Port(), .is_at_link = true});
  } else {
    errand_ = Errand::kLook;
    Do(LookAtEndpoint{.port = Port(), .is_port_here = hosts_ && !IsElected()});
  }
}

void ContactCore::On(const Looked& look) {
  const Errand errand = std::exchange(errand_, Errand::kNone);
  if (errand == Errand::kLook || errand == Errand::kWayBack) NoteAnswer(look);
  if (IsElected() && state_ == State::kLinked) return HearOfLeader(look);
  if (state_ != State::kSeeking) return;
  if (errand == Errand::kName) return JudgeName(look);
  if (errand == Errand::kWayBack && look.outcome != Outcome::kOurs) {
    attempt_at_ = now_;  // the name may lead elsewhere by now
    return;
  }
  const bool has_no_address =
      look.outcome == Outcome::kNoName || look.outcome == Outcome::kNameLater;
  if (!hosts_by_name_ && !has_no_address) hosts_ = look.is_this_host;
  ip_ = look.ip;
  leader_ = look.place;
  if (look.outcome != Outcome::kOurs) return JudgeAttempt(look);
  is_apart_ = look.is_apart;
  misfit_.clear();
  NoteRows(look);
  taken_since_.reset();
  Find();
}

void ContactCore::On(const Hosted& hosted) {
  errand_ = Errand::kNone;
  if (state_ != State::kSeeking) {
    // It came too late: nobody wants it any more.
    is_hosting_ = hosted.outcome == Hosted::Outcome::kHosting;
    if (is_hosting_) StopHost();
    return;
  }
  switch (hosted.outcome) {
    case Hosted::Outcome::kHosting:
      is_hosting_ = true;
      had_contact_ = true;
      made_leader_ = leader_ = hosted.place;
      Tell(ContactMade{HasPort() ? Place() : "", true});
      if (std::exchange(loss_, std::nullopt)) Tell(ContactRestored{});
      return Find();
    case Hosted::Outcome::kPortTaken:
      if (IsElected()) return JudgeAttempt({.text = hosted.text});
      if (!taken_since_) taken_since_ = now_;
      attempt_at_ = now_;  // look at once who has it
      return;
    case Hosted::Outcome::kExpired:
      return JudgeAttempt({.outcome = Outcome::kExpired, .text = hosted.text, .is_own = true});
    case Hosted::Outcome::kFailed:
      // Who has been in the job waits out what keeps it from leading, as a password that changes.
      if (IsElected() && (had_contact_ || record_.is_assigned())) {
        return JudgeAttempt({.text = hosted.text});
      }
      return Fail(absl::StrCat("cannot host the rendezvous: ", hosted.text),
                  hosted.is_local ? Kind::kLocal : Kind::kRendezvous);
  }
}

void ContactCore::On(const HostFinished&) {
  // At once, whatever else this agent waits for: the next job may want the port.
  if (is_hosting_) StopHost();
}

void ContactCore::On(const HostStopped&) {
  // It may host again, for the next job.
  is_hosting_ = is_stopping_host_ = false;
}

void ContactCore::JudgeName(const Looked& look) {
  if (look.outcome == Outcome::kFound) {
    is_name_checked_ = true;
    backoff_.Reset();
    return SeekAgain();
  }
  const std::string trouble =
      absl::StrCat(options_.local_addr_source, ": ", look.text,
                   "; expected a host name that resolves here, or an IP address");
  if (look.outcome == Outcome::kNoName) return Fail(trouble);
  trouble_ = trouble;
  TellWait(trouble, absl::StrCat("waiting for ", trouble));
  SeekAgain();
}

void ContactCore::JudgeAttempt(const Looked& look) {
  if (IsElected()) return JudgeLeader(look);
  const bool is_refused = look.outcome == Outcome::kRefused;
  const bool is_replaced = IsStranger(look.outcome) || look.outcome == Outcome::kOtherRelease;
  // Whoever has the port says nothing on it: perhaps nobody has it any more.
  const bool may_be_free =
      is_refused || look.outcome == Outcome::kUnreachable || look.outcome == Outcome::kClosed;
  const bool is_outwaited = IsStranger(look.outcome) && had_contact_;
  trouble_ = is_outwaited ? AttemptText(look) : look.text;
  NoteRows(look);
  if (TryNextPort(look)) return GoToNextPort();
  if (loss_) {
    const bool is_expired = look.outcome == Outcome::kExpired;
    LoseContact({.reason = is_expired ? look.text : AttemptText(look),
                 .is_gone = is_replaced || is_refused,
                 .is_lasting = is_replaced || is_expired});
  }
  if (!record_.is_assigned()) {
    const bool is_other_job = look.outcome == Outcome::kOtherRun && options_.more_ports.empty();
    if ((is_other_job && !is_outwaited) || look.refuses) {
      // Its coordinator refuses this node, and names it to those who may be waiting for it.
      misfit_ = AttemptText(look);
      return Find();
    }
    if (const std::optional<std::string> trouble = FinalTrouble(look)) {
      const bool is_distrusted =
          look.outcome == Outcome::kDistrusted || look.outcome == Outcome::kExpired;
      return Fail(*trouble, is_distrusted ? Kind::kDistrusted : Kind::kRendezvous);
    }
  }
  SeekAgain();
  tries_host_ = MayHost() && may_be_free;
  if (tries_host_ && !taken_since_) {
    attempt_at_ = now_;
  } else if (!record_.is_assigned() && now_ >= without_contact_since_ + kQuietStart) {
    TellWait(trouble_, WaitText(trouble_));
  }
}

void ContactCore::NoteRows(const Looked& look) {
  const auto note = [](bool is_one, TimePoint since, std::optional<TimePoint>& row) {
    if (!is_one) row.reset();
    if (is_one && !row) row = since;
  };
  note(look.outcome == Outcome::kClosed, now_, closed_since_);
  note(look.outcome == Outcome::kSilent, errand_since_, silent_since_);
  note(IsStranger(look.outcome), now_, stranger_since_);
}

std::optional<std::string> ContactCore::FinalTrouble(const Looked& look) const {
  if (IsStranger(look.outcome) && had_contact_) {
    if (now_ - *stranger_since_ < kStrangerLimit) return std::nullopt;
    return absl::StrCat(AttemptText(look), "; nobody else has answered there for ",
                        DurationText(kStrangerLimit));
  }
  const bool is_known_other = look.outcome == Outcome::kOtherRun && !options_.more_ports.empty();
  const bool is_others = look.outcome == Outcome::kForeign || look.outcome == Outcome::kDistrusted;
  const bool is_misfit = is_others || look.outcome == Outcome::kOtherRelease;
  if (is_misfit || is_known_other || look.outcome == Outcome::kExpired) return AttemptText(look);
  // Who was here once may come back, or its port may be about to become free, or its name, which
  // worked before, is in the middle of an update.
  if (had_contact_ || is_ending_) return std::nullopt;
  if (look.outcome == Outcome::kNoName) {
    return absl::StrCat("endpoint ", Place(), ": ", look.text,
                        "; expected a host name that resolves here, or an IP address");
  }
  if (look.outcome == Outcome::kSilent) {
    // Elsewhere a stopped process may be continued.
    if (!hosts_ || now_ - *silent_since_ < kSilentLimit) return std::nullopt;
    return AttemptText(look);
  }
  if (closed_since_ && now_ - *closed_since_ >= kClosedLimit) return AttemptText(look);
  // Where it is taken by who closes, that has its own limit.
  const bool is_closing = look.outcome == Outcome::kClosed;
  if (taken_since_ && !is_closing && now_ - *taken_since_ >= kTakenLimit) return TakenText();
  return std::nullopt;
}

bool ContactCore::HasNextPort() const {
  const size_t count = options_.more_ports.size();
  // The host goes through them once; the others do not see what it saw, and go round.
  const bool is_known = had_contact_ || is_ending_ || record_.is_assigned();
  return count > 0 && !is_known && (!hosts_ || port_ < count);
}

bool ContactCore::TryNextPort(const Looked& look) {
  const bool is_others =
      IsStranger(look.outcome) || (look.outcome == Outcome::kExpired && !look.is_own);
  others_ports_ = is_others ? others_ports_ + 1 : 0;
  if (look.outcome == Outcome::kOtherRelease) return false;  // it is our job's
  // There is none that could become ours.
  if (!HasNextPort() || others_ports_ > options_.more_ports.size()) return false;
  const bool is_mute = look.outcome == Outcome::kClosed || look.outcome == Outcome::kSilent;
  // Where we could not listen, it is taken whatever it says.
  const bool is_lost = hosts_ ? taken_since_.has_value() : look.outcome == Outcome::kRefused;
  return is_others || is_mute || is_lost;
}

void ContactCore::GoToNextPort() {
  port_ = (port_ + 1) % (options_.more_ports.size() + 1);
  taken_since_.reset();
  closed_since_.reset();
  silent_since_.reset();
  tries_host_ = MayHost();
  if (port_ > 0) {
    attempt_at_ = now_;
    return;
  }
  SeekAgain();
  if (now_ < without_contact_since_ + kQuietStart) return;
  TellWait(trouble_,
           absl::StrCat("waiting for the coordinator at ", Place(), " and ",
                        options_.more_ports.size(), " more ports (last try: ", trouble_, ")"));
}

uint16_t ContactCore::Port() const {
  return port_ == 0 ? options_.endpoint_port : options_.more_ports[port_ - 1];
}

bool ContactCore::MayHost() const {
  // Workers live on: whoever leads takes their round up.
  if (IsElected()) return hosts_ && !is_hosting_ && now_ >= stands_from_;
  return hosts_ && !is_hosting_ && !is_apart_ && !record_.is_assigned();
}

TimePoint ContactCore::GiveUpAt() const {
  return std::max(without_contact_since_, joined_at_) + options_.policy.join_timeout;
}

void ContactCore::SeekAgain() {
  state_ = State::kSeeking;
  attempt_at_ = now_ + backoff_.Next(now_, std::generate_canonical<double, 31>(random_));
}

void ContactCore::Find() {
  state_ = State::kFound;
  // Everything is to be said again. A link is opened when there is something to say: the
  // coordinator closes one over which nobody joins.
  record_.StartSession();
}

void ContactCore::Fail(const std::string& message, RendezvousFailed::Kind kind) {
  if (state_ == State::kLinked) Do(CloseLink{});
  state_ = State::kOver;
  Tell(RendezvousFailed{message, kind});
}

void ContactCore::StopHost(bool is_resigning) {
  if (!std::exchange(is_stopping_host_, true)) Do(StopHosting{is_resigning});
}

}  // namespace ddprun::rendezvous
