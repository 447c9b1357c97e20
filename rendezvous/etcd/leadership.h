// One coordinator's place as the leader of its job, held in etcd.
//
// The leader's key is written by a transaction that compares the revision at which this process saw
// it last, so that of several only one gets it, and lives on a lease that a thread of this object
// renews. The revision of that writing is the coordinator's epoch: greater than all before. What
// must outlive the coordinator is written by transactions that compare that same revision.
// When the lease has not been renewed for its whole time the coordinator waits before it says
// anything (tenure.h); when the key is another's, or nothing was heard for much longer, it is lost.
#ifndef DDPRUN_RENDEZVOUS_ETCD_LEADERSHIP_H_
#define DDPRUN_RENDEZVOUS_ETCD_LEADERSHIP_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/etcd/etcd_client.h"
#include "rendezvous/etcd/etcd_options.h"
#include "rendezvous/etcd/leader_key.h"
#include "rendezvous/etcd/tenure.h"
#include "rendezvous/server/job_memory.h"

namespace ddprun::rendezvous {

class Leadership final : public JobMemory {
 public:
  struct Options {
    EtcdOptions etcd;
    std::string run_id;
    // Where the others reach this machine.
    std::string address;
    std::string host;  // for people
    // Of the leader's key as it was seen last; 0: there was none.
    int64_t seen_revision = 0;
    // How long the job's key is kept when nobody leads: as long as an agent waits for a
    // coordinator.
    Duration job_time = std::chrono::seconds(600);
    // Called once on a thread of this object's, with the reason as half a sentence, when the place
    // is lost while it was held; must not block.
    std::function<void(const std::string&)> on_lost;
  };

  explicit Leadership(Options options);
  ~Leadership() override;

  // Besides ALREADY_EXISTS: EtcdClient's errors; RESOURCE_EXHAUSTED: the system has no thread left.
  absl::StatusOr<Beginning> Begin(uint16_t port, Duration timeout) override;
  // A record is tried again until it is durable. Of one that never is nothing is said.
  void Write(const Record& record, std::function<void()> on_written) override;
  void Forget(Duration timeout) override { End(Ending::kForget, timeout); }
  void Leave(Duration timeout) override { End(Ending::kLeave, timeout); }
  bool AwaitTurn(bool& has_waited) override;
  void EndWaits() override;

  // After Begin: what the others read.
  const Leader& leader() const { return self_; }

 private:
  enum class Ending { kNone, kLeave, kForget };

  absl::StatusOr<EtcdClient::Outcome> Campaign(TimePoint deadline);
  absl::StatusOr<Beginning> TakeUp(const std::optional<EtcdKey>& job) const;
  void Run();
  void RenewLease();
  void RenewJobLease();
  absl::StatusOr<EtcdClient::Outcome> PutRecord(const Record& record, TimePoint deadline);
  void WriteRecord();
  void Lose(const std::string& why);
  void End(Ending how, Duration timeout);
  void CarryOutEnd();

  const Options options_;
  const std::string leader_key_;
  const std::string job_key_;
  Leader self_;
  EtcdClient etcd_;  // of Begin's thread, then of ours

  // Our thread's own.
  int64_t lease_ = 0;
  int64_t revision_ = 0;   // at which the leader's key became ours
  int64_t job_lease_ = 0;  // 0: none yet
  Duration job_time_{0};
  TimePoint renew_job_at_{};
  TimePoint write_at_{};
  std::optional<Record> written_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Tenure> tenure_;
  bool are_waits_over_ = false;
  bool is_loss_told_ = false;
  std::optional<Record> record_;  // to be written
  std::vector<std::function<void()>> on_written_;
  Ending ending_ = Ending::kNone;
  TimePoint end_by_{};
  std::promise<void> ended_;

  std::thread thread_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_LEADERSHIP_H_
