// A model of etcd in virtual time, asked over a network that loses and delays, and stopped at
// times.
#ifndef DDPRUN_TESTS_SIM_SIM_ETCD_H_
#define DDPRUN_TESTS_SIM_SIM_ETCD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/etcd/etcd_calls.h"
#include "tests/rendezvous/etcd/etcd_model.h"
#include "tests/sim/sim_random.h"
#include "tests/sim/timeline.h"

namespace ddprun::sim {

class SimEtcd {
 public:
  struct Asked {
    size_t who = 0;
    std::string self;  // of a process that may be dead when it arrives
    rendezvous::EtcdCall call;
    // Whether the process can ask the next member; unset: it always can.
    std::function<bool()> is_running = nullptr;
  };
  using Then = std::function<void(rendezvous::EtcdAnswer)>;
  // Told of each call that was carried out, with the job's key as it was before.
  using Watch = std::function<void(const Asked&, const rendezvous::EtcdAnswer&,
                                   const std::optional<rendezvous::EtcdKey>&)>;

  // From `heal_at` on nothing is lost and nothing late.
  SimEtcd(Timeline& timeline, uint64_t seed, TimePoint heal_at, std::string watched, Watch watch);

  // As EtcdClient does: at one member after the other until one answers in time, or none has. What
  // was not answered may be carried out all the same, however late.
  void Ask(const Asked& asked, const Then& then);
  // What arrives meanwhile is found at the end. `is_anew`: leases then have their whole time.
  void Stop(TimePoint until, bool is_anew);
  // Whatever goes there or comes back takes up to so much longer.
  void Slow(TimePoint until, Duration longest);
  // What one asks meanwhile is found at the end.
  void Cut(size_t who, TimePoint until);

  struct Load {
    uint64_t reads = 0;
    uint64_t writes = 0;  // what its members agree on: leases that begin and end, transactions
  };
  // Of all calls that have arrived.
  const Load& load() const { return load_; }

  rendezvous::testing::EtcdModel& model() { return model_; }
  const rendezvous::testing::EtcdModel& model() const { return model_; }

 private:
  void Attempt(const Asked& asked, int attempts, const Then& then);
  void Arrive(const Asked& asked, const std::shared_ptr<bool>& is_over, const Then& then);
  bool Strikes(int percent) { return timeline_.now() < heal_at_ && random_.Chance(percent); }
  Duration Delay();

  Timeline& timeline_;
  Random random_;
  const TimePoint heal_at_;
  const std::string watched_;
  const Watch watch_;
  const int loss_percent_;
  const int late_percent_;
  rendezvous::testing::EtcdModel model_;
  Load load_;
  TimePoint stopped_until_{};
  TimePoint slow_until_{};
  Duration slow_by_{0};
  std::map<size_t, TimePoint> cut_until_;
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SIM_ETCD_H_
