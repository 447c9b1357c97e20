#include "rendezvous/etcd/leadership.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/core/text.h"
#include "rendezvous/server/job_file.h"

namespace ddprun::rendezvous {
namespace {

constexpr Duration kTryAgain = std::chrono::milliseconds(200);
constexpr Duration kRenewalLimit = 3 * EtcdClient::kMemberPatience;
// The job's lease is long: it is renewed now and then.
constexpr int kJobRenewals = 4;
constexpr Duration kShortestJobTime = std::chrono::seconds(5);

// Leases have numbers of their owners' choice, so that a grant whose answer was lost is known.
int64_t DrawLease() {
  int64_t number = 0;
  DDP_CHECK(getentropy(&number, sizeof(number)) == 0);
  return std::max<int64_t>(1, number & INT64_MAX);
}

}  // namespace

Leadership::Leadership(Options options)
    : options_(std::move(options)),
      leader_key_(LeaderKeyOf(options_.etcd.prefix, options_.run_id)),
      job_key_(JobKeyOf(options_.etcd.prefix, options_.run_id)),
      etcd_(options_.etcd) {}

Leadership::~Leadership() {
  {
    const std::lock_guard lock(mutex_);
    if (ending_ == Ending::kNone) ending_ = Ending::kLeave;
    changed_.notify_all();
  }
  etcd_.Cancel();
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<Beginning> Leadership::Begin(uint16_t port, Duration timeout) {
  const TimePoint deadline = SteadyNow() + timeout;
  self_ = {.address = options_.address, .port = port, .host = options_.host};
  lease_ = DrawLease();
  const TimePoint asked_at = SteadyNow();
  const absl::StatusOr<Duration> granted = etcd_.Grant(lease_, Tenure::kLease, deadline);
  if (!granted.ok()) return granted.status();
  absl::StatusOr<EtcdClient::Outcome> outcome = Campaign(deadline);
  absl::StatusOr<Beginning> beginning =
      outcome.ok() ? TakeUp(outcome->read) : absl::StatusOr<Beginning>(outcome.status());
  if (!beginning.ok()) {
    (void)etcd_.Revoke(lease_, deadline);  // it ends by itself as well
    return beginning.status();
  }
  revision_ = outcome->revision;
  beginning->epoch = Epoch{static_cast<uint64_t>(revision_)};
  if (outcome->read) {
    job_lease_ = outcome->read->lease;
    written_ = DecodeRecord(outcome->read->value);
  }
  tenure_.emplace(asked_at, *granted);
  job_time_ = std::max(options_.job_time, kShortestJobTime);
  thread_ = StartQuietThread([this] { Run(); });
  if (thread_.joinable()) return beginning;
  (void)etcd_.Revoke(lease_, deadline);
  return absl::ResourceExhaustedError(
      absl::StrCat("start a thread for the leader's lease: ", kNoThreadText));
}

absl::StatusOr<EtcdClient::Outcome> Leadership::Campaign(TimePoint deadline) {
  const EtcdClient::Transaction transaction{
      .guarded_key = leader_key_,
      .revision = options_.seen_revision,
      .puts = {{.key = leader_key_, .value = EncodeLeader(self_), .lease = lease_}},
      .deletes = {},
      .read = job_key_};
  absl::StatusOr<EtcdClient::Outcome> outcome = etcd_.Apply(transaction, deadline);
  if (!outcome.ok() || outcome->is_applied) return outcome;
  // Or it was applied the first time, and the answer was lost.
  const bool is_ours = outcome->read && outcome->read->lease == lease_;
  if (!is_ours) {
    return absl::AlreadyExistsError(absl::StrCat(
        "another agent has become the leader of the job \"", options_.run_id, "\" in etcd"));
  }
  outcome->revision = outcome->read->revision;
  absl::StatusOr<std::optional<EtcdKey>> job = etcd_.Get(job_key_, deadline);
  if (!job.ok()) return job.status();
  outcome->read = *std::move(job);
  return outcome;
}

absl::StatusOr<Beginning> Leadership::TakeUp(const std::optional<EtcdKey>& job) const {
  Beginning beginning = BeginAnew();
  if (!job) return beginning;
  const std::optional<Record> record = DecodeRecord(job->value);
  if (!record) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the key \"", job_key_, "\" in etcd at ", MembersText(options_.etcd),
        " holds what ddprun has not written, or a later one has: remove it, or choose another "
        "--rdzv_id or --rdzv_conf etcd_prefix"));
  }
  Recall(*record, beginning);
  return beginning;
}

void Leadership::Run() {
  std::unique_lock lock(mutex_);
  while (ending_ == Ending::kNone) {
    const TimePoint now = SteadyNow();
    if (tenure_->IsLost(now) && !is_loss_told_) {
      lock.unlock();
      Lose(absl::StrCat("etcd at ", MembersText(options_.etcd), " has not renewed its lease for ",
                        DurationText(Tenure::kLease + Tenure::kMaxPause)));
      lock.lock();
      continue;
    }
    TimePoint next = tenure_->NextRenewal();
    if (record_) next = std::min(next, write_at_);
    if (is_loss_told_) next = now + std::chrono::hours(1);
    if (now < next) {
      changed_.wait_until(lock, ToSteady(next));
      continue;
    }
    const bool is_renewal = now >= tenure_->NextRenewal();
    lock.unlock();
    if (is_renewal) {
      RenewLease();
      RenewJobLease();
    } else {
      WriteRecord();
    }
    lock.lock();
  }
  lock.unlock();
  CarryOutEnd();
  ended_.set_value();
}

void Leadership::RenewLease() {
  const TimePoint asked_at = SteadyNow();
  const TimePoint deadline = asked_at + kRenewalLimit;
  const absl::StatusOr<Duration> renewed = etcd_.KeepAlive(lease_, deadline);
  if (renewed.ok() && *renewed == Duration{0}) return Lose("its lease in etcd has ended");
  // Who has seen that this process is gone takes the key over and leaves the lease alone.
  const absl::StatusOr<std::optional<EtcdKey>> key =
      renewed.ok() ? etcd_.Get(leader_key_, deadline) : renewed.status();
  if (key.ok() && (!*key || (*key)->revision != revision_)) {
    const std::optional<Leader> other = *key ? DecodeLeader((*key)->value) : std::nullopt;
    return Lose(other ? absl::StrCat("node ", other->host, " leads in its place, by etcd's word")
                      : "its key in etcd is gone");
  }
  const std::lock_guard lock(mutex_);
  if (key.ok()) {
    tenure_->Renew(asked_at, *renewed);
  } else {
    tenure_->Fail(SteadyNow());
  }
  changed_.notify_all();
}

void Leadership::RenewJobLease() {
  const TimePoint now = SteadyNow();
  if (job_lease_ == 0 || now < renew_job_at_) return;
  const absl::StatusOr<Duration> renewed = etcd_.KeepAlive(job_lease_, now + kRenewalLimit);
  if (!renewed.ok()) return;                      // tried again with the next renewal
  renew_job_at_ = now + *renewed / kJobRenewals;  // an earlier leader may have asked for another
  if (*renewed > Duration{0}) return;
  // It has ended, and what was on it is gone: written again on another one.
  job_lease_ = 0;
  const std::lock_guard lock(mutex_);
  if (!record_) record_ = written_;
}

absl::StatusOr<EtcdClient::Outcome> Leadership::PutRecord(const Record& record,
                                                          TimePoint deadline) {
  if (job_lease_ == 0) {
    const int64_t lease = DrawLease();
    const absl::StatusOr<Duration> granted = etcd_.Grant(lease, job_time_, deadline);
    if (!granted.ok()) return granted.status();
    job_lease_ = lease;
  }
  return etcd_.Apply(
      {.guarded_key = leader_key_,
       .revision = revision_,
       .puts = {{.key = job_key_, .value = EncodeRecord(record), .lease = job_lease_}},
       .deletes = {},
       .read = ""},
      deadline);
}

void Leadership::WriteRecord() {
  std::unique_lock lock(mutex_);
  const Record record = *record_;
  const size_t told = on_written_.size();
  lock.unlock();
  const TimePoint deadline = SteadyNow() + kRenewalLimit;
  const absl::StatusOr<EtcdClient::Outcome> outcome = PutRecord(record, deadline);
  if (outcome.ok() && !outcome->is_applied) return Lose("its key in etcd is not its own any more");
  if (absl::IsAborted(outcome.status())) job_lease_ = 0;  // that lease is gone
  lock.lock();
  if (!outcome.ok()) {
    write_at_ = SteadyNow() + kTryAgain;
    return;
  }
  written_ = record;
  // What came meanwhile is written next.
  if (record_ == record) record_.reset();
  std::vector<std::function<void()>> tell(on_written_.begin(),
                                          on_written_.begin() + static_cast<ptrdiff_t>(told));
  on_written_.erase(on_written_.begin(), on_written_.begin() + static_cast<ptrdiff_t>(told));
  lock.unlock();
  for (const std::function<void()>& written : tell) written();
}

void Leadership::Lose(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    tenure_->Lose();
    record_.reset();
    if (std::exchange(is_loss_told_, true) || ending_ != Ending::kNone) return;
    changed_.notify_all();
  }
  if (options_.on_lost) options_.on_lost(why);
}

void Leadership::Write(const Record& record, std::function<void()> on_written) {
  const std::lock_guard lock(mutex_);
  record_ = record;
  write_at_ = {};
  if (on_written) on_written_.push_back(std::move(on_written));
  changed_.notify_all();
}

bool Leadership::AwaitTurn(bool& has_waited) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const TimePoint now = SteadyNow();
    if (tenure_->MayTell(now)) return true;
    if (are_waits_over_) return false;
    has_waited = true;
    // Whoever owns the coordinator ends it when the place is lost, and with it this wait.
    changed_.wait_until(lock, ToSteady(now + Tenure::kMaxPause));
  }
}

void Leadership::EndWaits() {
  const std::lock_guard lock(mutex_);
  are_waits_over_ = true;
  changed_.notify_all();
}

void Leadership::End(Ending how, Duration timeout) {
  std::future<void> ended;
  {
    const std::lock_guard lock(mutex_);
    ending_ = how;
    end_by_ = SteadyNow() + timeout;
    ended = ended_.get_future();
    changed_.notify_all();
  }
  ended.wait_for(timeout);
  etcd_.Cancel();
}

void Leadership::CarryOutEnd() {
  std::unique_lock lock(mutex_);
  const bool is_ours = !is_loss_told_;
  const Ending how = ending_;
  const TimePoint by = end_by_;
  const bool has_unwritten = record_.has_value();
  lock.unlock();
  if (is_ours && how == Ending::kLeave && has_unwritten) WriteRecord();
  if (is_ours && how == Ending::kForget) {
    const absl::StatusOr<EtcdClient::Outcome> outcome =
        etcd_.Apply({.guarded_key = leader_key_,
                     .revision = revision_,
                     .puts = {},
                     .deletes = {job_key_, leader_key_},
                     .read = ""},
                    by);
    // The job's lease may carry a later leader's record.
    if (outcome.ok() && outcome->is_applied && job_lease_ != 0) (void)etcd_.Revoke(job_lease_, by);
  }
  // With it our key goes, at once, where it is ours still. What etcd does not hear ends by itself.
  (void)etcd_.Revoke(lease_, by);
}

}  // namespace ddprun::rendezvous
