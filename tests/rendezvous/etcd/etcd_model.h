// A model of etcd for tests of what asks it: one store whose calls happen one after the other, with
// leases. When it is asked, and what becomes of its answers, is the test's.
#ifndef DDPRUN_TESTS_RENDEZVOUS_ETCD_ETCD_MODEL_H_
#define DDPRUN_TESTS_RENDEZVOUS_ETCD_ETCD_MODEL_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "rendezvous/base/time.h"
#include "rendezvous/etcd/etcd_calls.h"

namespace ddprun::rendezvous::testing {

class EtcdModel {
 public:
  // Carries the call out, and ends leases whose time is over before.
  EtcdAnswer Carry(TimePoint now, const EtcdCall& call);
  // A new leader of etcd's own gives every lease its whole time anew.
  void RenewAll(TimePoint now);

  // nullopt: there is no such key.
  std::optional<EtcdKey> Find(const std::string& key) const;
  // Keys and leases.
  size_t size() const { return keys_.size() + leases_.size(); }
  void EndLeases(TimePoint now);

 private:
  struct Lease {
    Duration time{0};
    TimePoint ends_at;
  };
  EtcdAnswer Do(TimePoint now, const GrantLease& call);
  EtcdAnswer Do(TimePoint now, const RenewLease& call);
  EtcdAnswer Do(TimePoint now, const RevokeLease& call);
  EtcdAnswer Do(TimePoint now, const ReadKey& call);
  EtcdAnswer Do(TimePoint now, const EtcdTransaction& call);
  void End(int64_t lease);

  int64_t revision_ = 1;
  std::map<std::string, EtcdKey> keys_;
  std::map<int64_t, Lease> leases_;
};

}  // namespace ddprun::rendezvous::testing

#endif  // DDPRUN_TESTS_RENDEZVOUS_ETCD_ETCD_MODEL_H_
