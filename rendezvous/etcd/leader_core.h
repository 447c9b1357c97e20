// Decides how one coordinator becomes and stays the leader of its job, by what etcd answers. [pure]
//
// The leader's key is written by a transaction that compares the revision at which this process saw
// it last, so that of several only one gets it, and lives on a lease that is renewed. The revision
// of that writing is the coordinator's epoch: greater than all before. What must outlive the
// coordinator is written by transactions that compare that same revision, and that of the record
// before: a copy of one that a member was slow with then overwrites none that came later.
//
// A driver (leadership.h) carries out one call at a time in each of two lanes: NextCall says which,
// Hear what came of it. A leader renews its lease in one and keeps its record by the other: a slow
// record holds up no renewal. Its beginning and its end are in the lane of the lease. How far it
// is:
//
//   kBeginning -> kLeading -> kEnding -> kOver
//        |            |                    ^
//        |            +-- kLost --- End ---+
//        +-- its lease is given back ------+
#ifndef DDPRUN_RENDEZVOUS_ETCD_LEADER_CORE_H_
#define DDPRUN_RENDEZVOUS_ETCD_LEADER_CORE_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "rendezvous/base/time.h"
#include "rendezvous/etcd/etcd_calls.h"
#include "rendezvous/etcd/tenure.h"

namespace ddprun::rendezvous {

class LeaderCore {
 public:
  struct Options {
    std::string run_id;
    std::string prefix;  // of all keys
    std::string self;    // the leader's key's value
    // Of the leader's key as it was seen last; 0: there was none.
    int64_t seen_revision = 0;
    // How long the job's key is kept when nobody leads.
    Duration job_time{0};
    uint64_t seed = 0;      // of the leases' numbers, which nobody else's are to be
    std::string etcd_text;  // for people
  };
  enum class Stage { kBeginning, kLeading, kLost, kEnding, kOver };
  enum class Ending { kLeave, kForget };
  enum class Lane { kLease, kRecord };

  explicit LeaderCore(Options options);

  // The call that is due; nullopt: none before NextCallAt(). Its answer goes to Hear before the
  // next of the lane is asked for. REQUIRES: now never decreases.
  std::optional<EtcdCall> NextCall(Lane lane, TimePoint now);
  void Hear(Lane lane, TimePoint now, const EtcdAnswer& answer);
  // REQUIRES: no call of the lane is under way. nullopt: none is planned.
  std::optional<TimePoint> NextCallAt(Lane lane) const;

  // A record, as text, to be kept. One that has not been written yet is replaced. Its number, above
  // all before.
  uint64_t Write(std::string record);
  // Leads no more, or begins no more; `by`: what is not done by then is left to the leases' end.
  void End(Ending how, TimePoint by);

  Stage stage() const { return stage_; }
  // Behind kBeginning: why it does not lead. ALREADY_EXISTS: another one does.
  const absl::Status& failure() const { return failure_; }
  int64_t revision() const { return revision_; }
  // How long a verdict waits to be kept: longer than a leader may speak that cannot reach etcd, so
  // that nobody is told one of which the next leader finds nothing. etcd may grant a longer lease
  // than was asked for.  REQUIRES: it leads.
  Duration record_limit() const { return granted_ + std::chrono::seconds(2); }
  // What the job's last leader left, as the place was taken; nullopt: nothing.
  const std::optional<std::string>& found() const { return found_; }
  // Up to this number records are durable, or were replaced by one that is.
  uint64_t done_records() const { return done_records_; }
  // Why etcd has not kept what was written for a while, once until it does; OK: nothing new.
  absl::Status TakeTrouble() { return std::exchange(trouble_, absl::OkStatus()); }
  // kLost: why, as half a sentence.
  const std::string& loss() const { return loss_; }
  bool MayTell(TimePoint now) const { return tenure_ && tenure_->MayTell(now); }
  TimePoint end_by() const { return end_by_; }

 private:
  enum class Doing {
    kNothing,
    kGrant,
    kCampaign,
    kRenew,
    kCheckKey,
    kRenewJob,
    kGrantJob,
    kPutRecord,
    kForget,
    kCheckEnd,
    kRevokeJob,
    kRevoke,
  };

  EtcdCall Start(Lane lane, Doing what, EtcdCall call);
  EtcdCall Start(Doing what, EtcdCall call) { return Start(Lane::kLease, what, std::move(call)); }
  std::optional<EtcdCall> CallOfLease(TimePoint now);
  std::optional<EtcdCall> CallOfRecord(TimePoint now);
  std::optional<EtcdCall> CallOfEnd();
  EtcdCall RecordCall(Lane lane);
  Doing& doing(Lane lane) { return lane == Lane::kLease ? doing_ : record_doing_; }
  EtcdTransaction CampaignCall() const;

  void HearGrant(const EtcdAnswer& answer);
  void HearCampaign(const EtcdAnswer& answer);
  void HearRenewal(TimePoint now, const EtcdAnswer& answer);
  void HearKey(TimePoint now, const EtcdAnswer& answer);
  void HearJobRenewal(TimePoint now, const EtcdAnswer& answer);
  void HearRecord(TimePoint now, const EtcdAnswer& answer);
  void TryAgain(TimePoint now, const absl::Status& why);
  void PutNext();
  void RevokeJobNext();
  void FailToBegin(absl::Status status);
  void Lose(std::string why);
  int64_t DrawLease();

  const Options options_;
  const std::string leader_key_;
  const std::string job_key_;
  std::mt19937_64 numbers_;
  const int64_t lease_;

  Stage stage_ = Stage::kBeginning;
  absl::Status failure_;
  std::string loss_;
  Doing doing_ = Doing::kNothing;  // in the lease's lane
  Doing record_doing_ = Doing::kNothing;
  // What comes next in the lease's lane where that does not hang on the time.
  std::optional<Doing> next_ = Doing::kGrant;
  bool puts_next_ = false;  // likewise in the record's
  TimePoint asked_at_;      // for the lease
  Duration granted_{0};
  std::optional<Tenure> tenure_;
  int64_t revision_ = 0;  // at which the leader's key became ours

  std::optional<std::string> found_;
  int64_t job_lease_ = 0;  // 0: none yet
  TimePoint renew_job_at_{};
  int64_t new_job_lease_ = 0;    // being granted
  int64_t record_revision_ = 0;  // of the job's key, as far as is known; 0: there is none
  std::optional<std::string> written_;
  std::optional<std::string> record_;  // to be written
  std::string writing_;
  uint64_t writing_number_ = 0;
  TimePoint write_at_{};
  std::optional<TimePoint> unwritten_since_;
  absl::Status trouble_;  // of that; OK: none, or it was told
  bool is_trouble_told_ = false;
  uint64_t last_record_ = 0;  // its number
  uint64_t done_records_ = 0;

  Ending ending_ = Ending::kLeave;
  bool has_last_word_ = false;  // a record that is tried once more before the end
  TimePoint end_by_ = TimePoint::max();
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_LEADER_CORE_H_
