#include "rendezvous/etcd/leader_core.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "rendezvous/core/text.h"
#include "rendezvous/etcd/leader_key.h"

namespace ddprun::rendezvous {
namespace {

constexpr Duration kTryAgain = std::chrono::milliseconds(200);
// An etcd that elects its own leader keeps nothing for a second or two.
constexpr Duration kQuietly = std::chrono::seconds(5);
// The job's lease is long: it is renewed now and then.
constexpr int kJobRenewals = 4;
constexpr Duration kShortestJobTime = std::chrono::seconds(5);

}  // namespace

LeaderCore::LeaderCore(Options options)
    : options_(std::move(options)),
      leader_key_(LeaderKeyOf(options_.prefix, options_.run_id)),
      job_key_(JobKeyOf(options_.prefix, options_.run_id)),
      numbers_(options_.seed),
      lease_(DrawLease()) {}

// Leases have numbers of their owners' choice, so that a grant whose answer was lost is known.
int64_t LeaderCore::DrawLease() {
  return std::max<int64_t>(1, static_cast<int64_t>(numbers_() & INT64_MAX));
}

EtcdCall LeaderCore::Start(Lane lane, Doing what, EtcdCall call) {
  doing(lane) = what;
  if (lane == Lane::kLease) {
    next_.reset();
  } else {
    puts_next_ = false;
  }
  return call;
}

std::optional<EtcdCall> LeaderCore::NextCall(Lane lane, TimePoint now) {
  DDP_CHECK(doing(lane) == Doing::kNothing);
  if (lane == Lane::kRecord) return CallOfRecord(now);
  switch (stage_) {
    case Stage::kBeginning:
      if (next_ == Doing::kCampaign) return Start(Doing::kCampaign, CampaignCall());
      asked_at_ = now;
      return Start(Doing::kGrant, GrantLease{lease_, Tenure::kLease});
    case Stage::kLeading:
      if (!tenure_->IsLost(now)) return CallOfLease(now);
      Lose(absl::StrCat("etcd at ", options_.etcd_text, " has not renewed its lease for ",
                        DurationText(Tenure::kLease + Tenure::kMaxPause)));
      return std::nullopt;
    case Stage::kEnding:
      if (now >= end_by_) {
        stage_ = Stage::kOver;
        return std::nullopt;
      }
      if (record_doing_ != Doing::kNothing) return std::nullopt;
      return CallOfEnd();
    case Stage::kLost:
    case Stage::kOver:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<EtcdCall> LeaderCore::CallOfLease(TimePoint now) {
  if (next_ == Doing::kCheckKey) return Start(Doing::kCheckKey, ReadKey{leader_key_});
  if (now >= tenure_->NextRenewal()) {
    asked_at_ = now;
    return Start(Doing::kRenew, RenewLease{lease_});
  }
  return std::nullopt;
}

std::optional<EtcdCall> LeaderCore::CallOfRecord(TimePoint now) {
  if (stage_ != Stage::kLeading) return std::nullopt;
  if (record_ && (puts_next_ || now >= write_at_)) return RecordCall(Lane::kRecord);
  if (job_lease_ != 0 && now >= renew_job_at_) {
    return Start(Lane::kRecord, Doing::kRenewJob, RenewLease{job_lease_});
  }
  return std::nullopt;
}

EtcdTransaction LeaderCore::CampaignCall() const {
  return {.guards = {{leader_key_, options_.seen_revision}},
          .puts = {{leader_key_, options_.self, lease_}},
          .deletes = {},
          .reads = {leader_key_, job_key_}};
}

EtcdCall LeaderCore::RecordCall(Lane lane) {
  if (job_lease_ == 0) {
    new_job_lease_ = DrawLease();
    return Start(lane, Doing::kGrantJob,
                 GrantLease{new_job_lease_, std::max(options_.job_time, kShortestJobTime)});
  }
  writing_ = *record_;
  writing_number_ = last_record_;
  return Start(lane, Doing::kPutRecord,
               EtcdTransaction{.guards = {{leader_key_, revision_}, {job_key_, record_revision_}},
                               .puts = {{job_key_, writing_, job_lease_}},
                               .deletes = {},
                               .reads = {leader_key_, job_key_}});
}

std::optional<EtcdCall> LeaderCore::CallOfEnd() {
  if (std::exchange(has_last_word_, false) && record_) return RecordCall(Lane::kLease);
  if (next_ == Doing::kPutRecord && record_) return RecordCall(Lane::kLease);
  if (next_ == Doing::kForget) {
    return Start(Doing::kForget, EtcdTransaction{.guards = {{leader_key_, revision_}},
                                                 .puts = {},
                                                 .deletes = {job_key_, leader_key_},
                                                 .reads = {}});
  }
  // An etcd without space refuses that before 3.4.20 and 3.5.7, and the end of a lease never.
  if (next_ == Doing::kCheckEnd) return Start(Doing::kCheckEnd, ReadKey{leader_key_});
  if (next_ == Doing::kRevokeJob) return Start(Doing::kRevokeJob, RevokeLease{job_lease_});
  // With it our key goes, at once, where it is ours still. What etcd does not hear ends by itself.
  return Start(Doing::kRevoke, RevokeLease{lease_});
}

std::optional<TimePoint> LeaderCore::NextCallAt(Lane lane) const {
  if (lane == Lane::kRecord) {
    if (stage_ != Stage::kLeading) return std::nullopt;
    if (puts_next_) return TimePoint::min();
    std::optional<TimePoint> next;
    if (record_) next = write_at_;
    if (job_lease_ != 0) next = std::min(next.value_or(TimePoint::max()), renew_job_at_);
    return next;
  }
  switch (stage_) {
    case Stage::kBeginning:
      return TimePoint::min();
    case Stage::kEnding:
      return record_doing_ == Doing::kNothing ? TimePoint::min() : end_by_;
    case Stage::kLeading:
      return next_ ? TimePoint::min() : tenure_->NextRenewal();
    case Stage::kLost:
    case Stage::kOver:
      return std::nullopt;
  }
  return std::nullopt;
}

void LeaderCore::Hear(Lane lane, TimePoint now, const EtcdAnswer& answer) {
  switch (std::exchange(doing(lane), Doing::kNothing)) {
    case Doing::kNothing:
      return;
    case Doing::kGrant:
      return HearGrant(answer);
    case Doing::kCampaign:
      return HearCampaign(answer);
    case Doing::kRenew:
      return HearRenewal(now, answer);
    case Doing::kCheckKey:
      return HearKey(now, answer);
    case Doing::kRenewJob:
      return HearJobRenewal(now, answer);
    case Doing::kGrantJob:
      if (!answer.status.ok()) return TryAgain(now, answer.status);
      job_lease_ = new_job_lease_;
      renew_job_at_ = now + answer.time / kJobRenewals;
      PutNext();
      return;
    case Doing::kPutRecord:
      return HearRecord(now, answer);
    case Doing::kForget:
      if (!answer.status.ok()) next_ = Doing::kCheckEnd;
      if (answer.status.ok() && answer.outcome.is_applied) RevokeJobNext();
      return;
    case Doing::kCheckEnd:
      if (answer.status.ok() && answer.key && answer.key->revision == revision_) RevokeJobNext();
      return;
    case Doing::kRevokeJob:
      return;
    case Doing::kRevoke:
      stage_ = Stage::kOver;
      return;
  }
}

void LeaderCore::HearGrant(const EtcdAnswer& answer) {
  if (stage_ != Stage::kBeginning) return;
  if (!answer.status.ok()) {
    failure_ = answer.status;
    stage_ = Stage::kOver;  // a lease that was granted all the same ends by itself
    return;
  }
  granted_ = answer.time;
  next_ = Doing::kCampaign;
}

void LeaderCore::HearCampaign(const EtcdAnswer& answer) {
  if (stage_ != Stage::kBeginning) return;
  if (!answer.status.ok()) return FailToBegin(answer.status);
  const EtcdOutcome& outcome = answer.outcome;
  const std::optional<EtcdKey>& leader = outcome.read[0];
  const std::optional<EtcdKey>& job = outcome.read[1];
  // Not applied, it may have been the first time, and the answer was lost.
  if (!outcome.is_applied && (!leader || leader->lease != lease_)) {
    return FailToBegin(absl::AlreadyExistsError(absl::StrCat(
        "another agent has become the leader of the job \"", options_.run_id, "\" in etcd")));
  }
  stage_ = Stage::kLeading;
  revision_ = outcome.is_applied ? outcome.revision : leader->revision;
  tenure_.emplace(asked_at_, granted_);
  if (!job) return;
  found_ = written_ = job->value;
  record_revision_ = job->revision;
  job_lease_ = job->lease;
}

void LeaderCore::FailToBegin(absl::Status status) {
  failure_ = std::move(status);
  stage_ = Stage::kEnding;
}

void LeaderCore::HearRenewal(TimePoint now, const EtcdAnswer& answer) {
  if (stage_ != Stage::kLeading) return;
  if (!answer.status.ok()) return tenure_->Fail(now);
  if (answer.time == Duration{0}) return Lose("its lease in etcd has ended");
  granted_ = answer.time;
  // Who has seen that this process is gone takes the key over and leaves the lease alone.
  next_ = Doing::kCheckKey;
}

void LeaderCore::HearKey(TimePoint now, const EtcdAnswer& answer) {
  if (stage_ != Stage::kLeading) return;
  if (!answer.status.ok()) return tenure_->Fail(now);
  if (answer.key && answer.key->revision == revision_) return tenure_->Renew(asked_at_, granted_);
  const std::optional<Leader> other = answer.key ? DecodeLeader(answer.key->value) : std::nullopt;
  Lose(other ? absl::StrCat("node ", other->host, " leads in its place, by etcd's word")
             : "its key in etcd is gone");
}

void LeaderCore::HearJobRenewal(TimePoint now, const EtcdAnswer& answer) {
  renew_job_at_ = now + Tenure::kRenewEvery;
  if (stage_ != Stage::kLeading || !answer.status.ok()) return;
  renew_job_at_ = now + answer.time / kJobRenewals;  // an earlier leader may have asked for another
  if (answer.time > Duration{0}) return;
  // It has ended, and what was on it is gone: written again on another one.
  job_lease_ = 0;
  if (!record_) record_ = written_;
}

void LeaderCore::HearRecord(TimePoint now, const EtcdAnswer& answer) {
  if (absl::IsAborted(answer.status)) job_lease_ = 0;  // that lease is gone
  if (!answer.status.ok()) return TryAgain(now, answer.status);
  const EtcdOutcome& outcome = answer.outcome;
  const std::optional<EtcdKey>& leader = outcome.read[0];
  const std::optional<EtcdKey>& job = outcome.read[1];
  if (!leader || leader->revision != revision_) {
    if (stage_ == Stage::kLeading) Lose("its key in etcd is not its own any more");
    return;
  }
  record_revision_ = job ? job->revision : 0;
  // An earlier copy of this one, or of one before, was applied, and the answer lost.
  const bool is_there = job && job->value == writing_ && job->lease == job_lease_;
  if (!outcome.is_applied && !is_there) return PutNext();
  written_ = writing_;
  unwritten_since_.reset();
  is_trouble_told_ = false;
  done_records_ = std::max(done_records_, writing_number_);
  // What came meanwhile is written next.
  if (record_ == written_) record_.reset();
}

void LeaderCore::TryAgain(TimePoint now, const absl::Status& why) {
  write_at_ = now + kTryAgain;
  if (!unwritten_since_) unwritten_since_ = now;
  if (now < *unwritten_since_ + kQuietly || std::exchange(is_trouble_told_, true)) return;
  trouble_ = why;
}

// At once, unless nothing is to be kept.
void LeaderCore::PutNext() {
  if (stage_ == Stage::kLeading) puts_next_ = true;
  if (stage_ == Stage::kEnding && ending_ == Ending::kLeave) next_ = Doing::kPutRecord;
}

// REQUIRES: the place was ours a moment ago. That lease may carry a later leader's record; one that
// takes the place just now finds its lease gone, and writes the record anew on another.
void LeaderCore::RevokeJobNext() {
  if (job_lease_ != 0) next_ = Doing::kRevokeJob;
}

void LeaderCore::Lose(std::string why) {
  stage_ = Stage::kLost;
  loss_ = std::move(why);
  tenure_->Lose();
  record_.reset();
  puts_next_ = false;
  next_.reset();
}

uint64_t LeaderCore::Write(std::string record) {
  record_ = std::move(record);
  write_at_ = {};
  return ++last_record_;
}

void LeaderCore::End(Ending how, TimePoint by) {
  if (stage_ == Stage::kOver) return;
  end_by_ = by;
  ending_ = how;
  if (stage_ == Stage::kEnding) return;
  const bool is_ours = stage_ == Stage::kLeading;
  stage_ = Stage::kEnding;
  next_.reset();
  has_last_word_ = is_ours && how == Ending::kLeave && record_.has_value();
  if (is_ours && how == Ending::kForget) next_ = Doing::kForget;
}

}  // namespace ddprun::rendezvous
