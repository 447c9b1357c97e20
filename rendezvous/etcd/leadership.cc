#include "rendezvous/etcd/leadership.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/server/job_file.h"

namespace ddprun::rendezvous {
namespace {

using Lane = LeaderCore::Lane;

constexpr Duration kCallLimit = 3 * EtcdClient::kMemberPatience;

uint64_t DrawSeed() {
  uint64_t number = 0;
  DDP_CHECK(getentropy(&number, sizeof(number)) == 0);
  return number;
}

EtcdAnswer Carry(EtcdClient& etcd, const EtcdCall& call, TimePoint deadline) {
  EtcdAnswer answer;
  const auto take = [&answer](auto result, auto& place) {
    answer.status = result.status();
    if (result.ok()) place = *std::move(result);
  };
  if (const auto* grant = std::get_if<GrantLease>(&call)) {
    take(etcd.Grant(grant->lease, grant->time, deadline), answer.time);
  } else if (const auto* renew = std::get_if<RenewLease>(&call)) {
    take(etcd.KeepAlive(renew->lease, deadline), answer.time);
  } else if (const auto* revoke = std::get_if<RevokeLease>(&call)) {
    answer.status = etcd.Revoke(revoke->lease, deadline);
  } else if (const auto* read = std::get_if<ReadKey>(&call)) {
    take(etcd.Get(read->key, deadline), answer.key);
  } else {
    take(etcd.Apply(std::get<EtcdTransaction>(call), deadline), answer.outcome);
  }
  return answer;
}

}  // namespace

Leadership::Leadership(Options options)
    : options_(std::move(options)),
      etcd_(options_.etcd, options_.resolver, options_.first_member),
      record_etcd_(options_.etcd, options_.resolver, options_.first_member) {}

Leadership::~Leadership() {
  {
    const std::lock_guard lock(mutex_);
    if (core_) core_->End(LeaderCore::Ending::kLeave, SteadyNow());
    changed_.notify_all();
  }
  etcd_.Cancel();
  record_etcd_.Cancel();
  if (record_thread_.joinable()) record_thread_.join();
  if (thread_.joinable()) thread_.join();
}

// Carries out the call that is due, by `deadline`, without the lock. False: none is.
bool Leadership::Step(std::unique_lock<std::mutex>& lock, Lane lane, TimePoint deadline) {
  const TimePoint now = SteadyNow();
  const std::optional<EtcdCall> call = core_->NextCall(lane, now);
  if (!call) return false;
  const TimePoint by = std::min(deadline, core_->end_by());
  lock.unlock();
  const EtcdAnswer answer = Carry(lane == Lane::kLease ? etcd_ : record_etcd_, *call, by);
  lock.lock();
  core_->Hear(lane, SteadyNow(), answer);
  return true;
}

absl::StatusOr<Beginning> Leadership::Begin(uint16_t port, Duration timeout) {
  const TimePoint deadline = SteadyNow() + timeout;
  self_ = {.address = options_.address, .port = port, .host = options_.host};
  std::unique_lock lock(mutex_);
  core_.emplace(LeaderCore::Options{.run_id = options_.run_id,
                                    .prefix = options_.etcd.prefix,
                                    .self = EncodeLeader(self_),
                                    .seen_revision = options_.seen_revision,
                                    .job_time = options_.job_time,
                                    .seed = DrawSeed(),
                                    .etcd_text = MembersText(options_.etcd)});
  while (core_->stage() == LeaderCore::Stage::kBeginning) Step(lock, Lane::kLease, deadline);
  lock.unlock();
  if (!core_->failure().ok()) return EndBeginning(core_->failure(), deadline);
  absl::StatusOr<Beginning> beginning = TakeUp(core_->found());
  if (!beginning.ok()) return EndBeginning(beginning.status(), deadline);
  beginning->epoch = Epoch{static_cast<uint64_t>(core_->revision())};
  const absl::Status no_thread = absl::ResourceExhaustedError(
      absl::StrCat("start a thread for the leader's lease: ", kNoThreadText));
  thread_ = StartQuietThread([this] { Run(); });
  if (!thread_.joinable()) return EndBeginning(no_thread, deadline);
  record_thread_ = StartQuietThread([this] { RunRecords(); });
  if (record_thread_.joinable()) return beginning;
  Leave(deadline - SteadyNow(), {});
  return no_thread;
}

// What it has in etcd goes at once, or when its lease ends.
absl::Status Leadership::EndBeginning(absl::Status why, TimePoint deadline) {
  std::unique_lock lock(mutex_);
  core_->End(LeaderCore::Ending::kLeave, deadline);
  while (Step(lock, Lane::kLease, deadline)) {
  }
  return why;
}

absl::StatusOr<Beginning> Leadership::TakeUp(const std::optional<std::string>& job) const {
  Beginning beginning = BeginAnew();
  beginning.record_limit = core_->record_limit();
  if (!job) return beginning;
  const std::optional<Record> record = DecodeRecord(*job);
  if (!record) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the key \"", JobKeyOf(options_.etcd.prefix, options_.run_id), "\" in etcd at ",
        MembersText(options_.etcd),
        " holds what ddprun has not written, or a later one has: remove it, or choose another "
        "--rdzv-id or --rdzv-conf etcd_prefix"));
  }
  Recall(*record, beginning);
  return beginning;
}

std::optional<Election> Leadership::election() const {
  if (!options_.is_leader_gone) return Election{};
  return Election{.gone_leader = Epoch{static_cast<uint64_t>(options_.seen_revision)}};
}

void Leadership::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (Step(lock, Lane::kLease, SteadyNow() + kCallLimit)) {
      TellWritten(lock);      // the last one
      changed_.notify_all();  // it may tell again
      continue;
    }
    if (core_->stage() == LeaderCore::Stage::kOver) break;
    if (core_->stage() == LeaderCore::Stage::kLost && !std::exchange(is_loss_told_, true)) {
      TellLoss(lock);
      continue;
    }
    AwaitCall(lock, Lane::kLease);
  }
  ended_.set_value();
}

void Leadership::RunRecords() {
  std::unique_lock lock(mutex_);
  while (core_->stage() == LeaderCore::Stage::kLeading) {
    if (Step(lock, Lane::kRecord, SteadyNow() + kCallLimit)) {
      TellWritten(lock);
      TellTrouble(lock);
      changed_.notify_all();  // the end waits for it
    } else {
      AwaitCall(lock, Lane::kRecord);
    }
  }
}

// Who calls Write or End wakes it, and the other lane.
void Leadership::AwaitCall(std::unique_lock<std::mutex>& lock, Lane lane) {
  const TimePoint next = core_->NextCallAt(lane).value_or(SteadyNow() + std::chrono::hours(1));
  changed_.wait_until(lock, ToSteady(std::max(next, SteadyNow())));
}

void Leadership::TellWritten(std::unique_lock<std::mutex>& lock) {
  std::vector<std::function<void()>> tell;
  while (!on_written_.empty() && on_written_.front().first <= core_->done_records()) {
    tell.push_back(std::move(on_written_.front().second));
    on_written_.pop_front();
  }
  lock.unlock();
  for (const std::function<void()>& written : tell) written();
  lock.lock();
}

void Leadership::TellLoss(std::unique_lock<std::mutex>& lock) {
  const std::string why = core_->loss();
  lock.unlock();
  if (options_.on_lost) options_.on_lost(why);
  lock.lock();
}

void Leadership::TellTrouble(std::unique_lock<std::mutex>& lock) {
  const absl::Status why = core_->TakeTrouble();
  if (why.ok() || !options_.on_unwritten) return;
  lock.unlock();
  options_.on_unwritten(absl::StrCat("the job's record is not kept: ", why.message(),
                                     "; an agent that takes the coordinator's place knows of what "
                                     "has happened since only what the "
                                     "job's nodes know"));
  lock.lock();
}

void Leadership::Write(const Record& record, std::function<void()> on_written) {
  const std::lock_guard lock(mutex_);
  const uint64_t number = core_->Write(EncodeRecord(record));
  if (on_written) on_written_.emplace_back(number, std::move(on_written));
  changed_.notify_all();
}

bool Leadership::AwaitTurn(bool& has_waited) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const TimePoint now = SteadyNow();
    if (core_->MayTell(now)) return true;
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

void Leadership::End(LeaderCore::Ending how, Duration timeout) {
  std::future<void> ended;
  {
    const std::lock_guard lock(mutex_);
    core_->End(how, SteadyNow() + timeout);
    ended = ended_.get_future();
    changed_.notify_all();
  }
  record_etcd_.Cancel();  // what it was about is in the way of the end now
  ended.wait_for(timeout);
  etcd_.Cancel();
}

}  // namespace ddprun::rendezvous
