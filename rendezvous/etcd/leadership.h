// One coordinator's place as the leader of its job, held in etcd.
//
// LeaderCore decides; two threads of this object's carry out its calls, one for the lease and one
// for the record. When the lease has not been renewed for its whole time the coordinator waits
// before it says anything (tenure.h); when the key is another's, or nothing was heard for much
// longer, it is lost.
#ifndef DDPRUN_RENDEZVOUS_ETCD_LEADERSHIP_H_
#define DDPRUN_RENDEZVOUS_ETCD_LEADERSHIP_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "rendezvous/etcd/etcd_client.h"
#include "rendezvous/etcd/etcd_options.h"
#include "rendezvous/etcd/leader_core.h"
#include "rendezvous/etcd/leader_key.h"
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
    // That leader's machine said that nobody listens for it.
    bool is_leader_gone = false;
    // How long the job's key is kept when nobody leads: as long as an agent waits for a
    // coordinator.
    Duration job_time = std::chrono::seconds(600);
    // Called once on a thread of this object's, with the reason as half a sentence, when the place
    // is lost while it was held; must not block.
    std::function<void(const std::string&)> on_lost;
    // Called on that thread, with a sentence, when etcd has not kept what was written for a
    // while; must not block.
    std::function<void(const std::string&)> on_unwritten;
    Resolver resolver = ResolveName;
    size_t first_member = 0;  // EtcdClient's
  };

  explicit Leadership(Options options);
  // Waits for no resolver and no member of etcd.
  ~Leadership() override;

  // Besides ALREADY_EXISTS: EtcdClient's errors; RESOURCE_EXHAUSTED: the system has no thread left.
  absl::StatusOr<Beginning> Begin(uint16_t port, Duration timeout) override;
  // A record is tried again until it is durable.
  void Write(const Record& record, std::function<void()> on_written) override;
  std::optional<Election> election() const override;
  void Forget(Duration timeout) override { End(LeaderCore::Ending::kForget, timeout); }
  // etcd ends the job's keys when their lease is over.
  void Leave(Duration timeout, std::optional<Duration>) override {
    End(LeaderCore::Ending::kLeave, timeout);
  }
  bool AwaitTurn(bool& has_waited) override;
  void EndWaits() override;

  // After Begin: what the others read.
  const Leader& leader() const { return self_; }

 private:
  bool Step(std::unique_lock<std::mutex>& lock, LeaderCore::Lane lane, TimePoint deadline);
  absl::StatusOr<Beginning> TakeUp(const std::optional<std::string>& job) const;
  absl::Status EndBeginning(absl::Status why, TimePoint deadline);
  void Run();
  void RunRecords();
  void AwaitCall(std::unique_lock<std::mutex>& lock, LeaderCore::Lane lane);
  void TellWritten(std::unique_lock<std::mutex>& lock);
  void TellLoss(std::unique_lock<std::mutex>& lock);
  void TellTrouble(std::unique_lock<std::mutex>& lock);
  void End(LeaderCore::Ending how, Duration timeout);

  const Options options_;
  Leader self_;
  EtcdClient etcd_;  // of Begin's thread, then of the lease's
  EtcdClient record_etcd_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<LeaderCore> core_;  // from Begin on
  bool are_waits_over_ = false;
  bool is_loss_told_ = false;
  std::deque<std::pair<uint64_t, std::function<void()>>> on_written_;  // by the record's number
  std::promise<void> ended_;

  std::thread thread_;
  std::thread record_thread_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_LEADERSHIP_H_
