// A coordinator's place in etcd: the product's leader core, driven as Leadership drives it, over a
// simulated etcd.
#ifndef DDPRUN_TESTS_SIM_SIM_LEADERSHIP_H_
#define DDPRUN_TESTS_SIM_SIM_LEADERSHIP_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "rendezvous/core/types.h"
#include "rendezvous/etcd/leader_core.h"
#include "rendezvous/etcd/leader_key.h"
#include "tests/sim/process.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_etcd.h"

namespace ddprun::sim {

// Of all jobs of the simulator.
inline constexpr char kEtcdPrefix[] = "/ddprun";
std::string LeaderKeyOf(const Scenario& scenario);
std::string JobKeyOf(const Scenario& scenario);
// How long a job's record outlives its coordinators.
Duration JobTimeOf(const Scenario& scenario);

// A part of the coordinator's process: stopped, continued and killed with it.
class SimLeadership final : public Process {
 public:
  struct Setup {
    int node = 0;
    SimClock clock;
    rendezvous::Leader self;
    int64_t seen_revision = 0;
    uint64_t seed = 0;
    // One of the two, once; `failed` when nothing of it is left in etcd, as far as that can be
    // done.
    std::function<void(const rendezvous::Beginning&)> begun;
    std::function<void(const std::string& why)> failed;
    std::function<void(const std::string& why)> lost;
    // It may tell again.
    std::function<void()> changed;
  };
  SimLeadership(const Scenario& scenario, Timeline& timeline, SimEtcd& etcd, Setup setup);

  void Begin();
  void Write(const rendezvous::Record& record, std::function<void()> on_written);
  // `then` follows within two seconds, by its own clock.
  void End(rendezvous::LeaderCore::Ending how, std::function<void()> then);
  // Whether the coordinator may speak `ahead` of the present.
  bool MayTell(Duration ahead = Duration{0}) const { return core_.MayTell(now() + ahead); }
  const rendezvous::Leader& self() const { return setup_.self; }

 private:
  using Stage = rendezvous::LeaderCore::Stage;
  using Lane = rendezvous::LeaderCore::Lane;
  // The calls of one lane of the core.
  struct Calls {
    uint64_t count = 0;
    bool is_asking = false;
  };
  void AfterWork() override;
  void Ask(Lane lane, const rendezvous::EtcdCall& call);
  void Hear(Lane lane, uint64_t call, const rendezvous::EtcdAnswer& answer);
  void EndBeginning();
  void TellWritten();
  void TellEnded();

  const Scenario& scenario_;
  SimEtcd& etcd_;
  const Setup setup_;
  Random random_;
  rendezvous::LeaderCore core_;
  std::map<Lane, Calls> calls_;
  bool is_beginning_ = true;
  TimePoint begin_by_;
  std::string failure_;
  bool is_loss_told_ = false;
  std::deque<std::pair<uint64_t, std::function<void()>>> on_written_;  // by the record's number
  std::function<void()> ended_;
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SIM_LEADERSHIP_H_
