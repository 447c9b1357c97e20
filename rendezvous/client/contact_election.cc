// Where etcd says whose coordinator is the job's: whom to look for, and when to be the one.
//
// What shows that nobody speaks for the job is etcd's word that nobody leads it (the lease of who
// did is over), or the word of the leader's own machine that nobody, or somebody else, listens
// where the leader did. Anything else, silence above all, is waited out. Who then wants to lead
// says at which revision it saw the key, so that of several etcd takes one.
//
// A refusal may come from elsewhere: from a firewall, or from this very machine if it has the
// leader's address, too. Two such nodes would take the lead from each other in turns. So who took a
// place by a refusal waits for the lease of the next leader, until it has met a leader.
#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "rendezvous/client/contact_core.h"

namespace ddprun::rendezvous {
namespace {

constexpr char kRefusedAgain[] =
    "; etcd says that it leads: give each node a --local-addr that the others reach, and see that "
    "no firewall refuses";

bool IsNobodyThere(Looked::Outcome outcome) {
  switch (outcome) {
    case Looked::Outcome::kVacant:
    case Looked::Outcome::kRefused:
    case Looked::Outcome::kOtherRun:
    case Looked::Outcome::kForeign:
      return true;
    // It is the leader, of another release.
    case Looked::Outcome::kOtherRelease:
    // It may be the leader: with another token than this node's, which then is the one that errs.
    case Looked::Outcome::kDistrusted:
    case Looked::Outcome::kExpired:
    case Looked::Outcome::kOurs:
    case Looked::Outcome::kClosed:
    case Looked::Outcome::kSilent:
    case Looked::Outcome::kUnreachable:
    case Looked::Outcome::kNoName:
    case Looked::Outcome::kNameLater:
    case Looked::Outcome::kFound:
    case Looked::Outcome::kBarred:
      return false;
  }
  return false;
}

}  // namespace

void ContactCore::JudgeLeader(Looked look) {
  is_leader_refusing_ = IsNobodyThere(look.outcome) && look.outcome != Outcome::kVacant;
  const bool is_refused_again = is_leader_refusing_ && took_refused_place_;
  if (is_refused_again) look.text += kRefusedAgain;
  trouble_ = look.text;
  if (look.outcome == Outcome::kBarred && !had_contact_ && !record_.is_assigned()) {
    return Fail(look.text);
  }
  const bool is_expired = look.outcome == Outcome::kExpired;
  // Where the leader's has expired another node may lead; a node's own stays what it is.
  const bool is_final = is_expired && look.is_own;
  const bool is_refused = (is_expired || look.outcome == Outcome::kDistrusted) && !had_contact_;
  if ((is_final || is_refused) && !record_.is_assigned()) {
    return Fail(AttemptText(look), RendezvousFailed::Kind::kDistrusted);
  }
  if (look.outcome == Outcome::kOtherRelease && !had_contact_ && !record_.is_assigned()) {
    if (!look.refuses) return Fail(AttemptText(look));
    misfit_ = AttemptText(look);
    return Find();
  }
  if (loss_) LoseContact({.reason = look.text, .is_lasting = is_expired});
  SeekAgain();
  const bool may_lead = IsNobodyThere(look.outcome) && !is_refused_again && MayHost();
  // A look from before its turn says nothing of those whose turn came first.
  tries_host_ = may_lead && errand_since_ >= turn_at_;
  if (may_lead) {
    attempt_at_ = std::max(now_, tries_host_ ? now_ : turn_at_);
  } else if (!record_.is_assigned() && now_ >= without_contact_since_ + kQuietStart) {
    TellWait(look.text, WaitText(look.text));
  }
}

std::optional<TimePoint> ContactCore::WatchAt() const {
  if (!IsElected() || state_ != State::kLinked || is_local_ || end_by_) return std::nullopt;
  return std::max(last_heard_ + beat_interval_ * 3 / 2, knocked_at_ + watch_pause_);
}

int ContactCore::Candidates() const {
  return record_.had_round() ? record_.assignment().node_count : options_.policy.max_nodes;
}

Duration ContactCore::TurnAfter() {
  const int candidates = Candidates();
  if (!IsElected() || candidates <= kAtOnce) return Duration{0};
  const double chance = std::generate_canonical<double, 31>(random_);
  const int place =
      record_.had_round() ? record_.assignment().node_rank : static_cast<int>(chance * candidates);
  return place * std::min(kTurnOfEach, kLastTurn / candidates);
}

void ContactCore::AwaitTurn() {
  turn_at_ = now_ + TurnAfter();
  attempt_at_ = std::max(attempt_at_, turn_at_);
}

void ContactCore::WatchLeader() {
  const std::optional<TimePoint> at = WatchAt();
  if (!at || errand_ != Errand::kNone || now_ < *at) return;
  errand_ = Errand::kLook;
  errand_since_ = knocked_at_ = now_;
  const Duration half = std::max(next_watch_, Candidates() * kWatchOfEach) / 2;
  const double chance = std::generate_canonical<double, 31>(random_);
  watch_pause_ =
      half + Duration(static_cast<Duration::rep>(chance * static_cast<double>(half.count())));
  next_watch_ = std::min(2 * next_watch_, kLongestWatch);
  Do(LookAtEndpoint{.port = 0, .is_key_only = true});
}

void ContactCore::HearOfLeader(const Looked& look) {
  const bool is_vacant = look.outcome == Outcome::kVacant;
  const bool is_other = look.outcome == Outcome::kFound && look.place != leader_;
  if (is_local_ || (!is_vacant && !is_other)) return;
  Do(CloseLink{});
  has_contact_ = false;
  LoseContact({.reason = is_vacant ? "it does not answer, and its lease in etcd is over"
                                   : absl::StrCat("etcd names ", look.place, " in its place")});
  SeekAgain();
  attempt_at_ = now_;
  is_leader_refusing_ = false;
  if (is_vacant) AwaitTurn();
  tries_host_ = is_vacant && MayHost() && turn_at_ <= now_;
}

void ContactCore::On(const HostLost& lost) {
  if (!is_hosting_ || is_stopping_host_) return;
  if (lost.is_cut_off) stands_from_ = now_ + kStandAside;
  StopHost(/*is_resigning=*/true);
  if (state_ == State::kFound) return SeekAgain();
  if (state_ != State::kLinked) return;
  Do(CloseLink{});
  Break(lost.text);
}

}  // namespace ddprun::rendezvous
