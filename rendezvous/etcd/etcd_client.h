// What a job asks of etcd, version 3, by its gRPC API.
//
// Each call goes to the member that answered last and, where that does not answer in time, to the
// next; names are resolved aside, as a resolver may hang. Calls block, so they are for a thread
// that may: one thread at a time drives a client, and any thread may Cancel().
//
// Errors name the member and the cause. UNAVAILABLE and DEADLINE_EXCEEDED may pass;
// PERMISSION_DENIED, UNAUTHENTICATED, INVALID_ARGUMENT, FAILED_PRECONDITION and UNIMPLEMENTED are
// answers that do not change by themselves; ABORTED: a lease that was named is gone; CANCELLED
// follows Cancel().
#ifndef DDPRUN_RENDEZVOUS_ETCD_ETCD_CLIENT_H_
#define DDPRUN_RENDEZVOUS_ETCD_ETCD_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/base/time.h"
#include "rendezvous/etcd/etcd_calls.h"
#include "rendezvous/etcd/etcd_options.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {

class EtcdClient {
 public:
  // What one member has for an answer: short enough that a renewal gets round three members within
  // a lease.
  static constexpr Duration kMemberPatience = std::chrono::milliseconds(700);

  // `first_member`: which is asked first, as another client has had an answer from it.
  explicit EtcdClient(EtcdOptions options, Resolver resolver = ResolveName,
                      size_t first_member = 0);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  // What all members agree on, not what one of them knows.
  absl::StatusOr<std::optional<EtcdKey>> Get(const std::string& key, TimePoint deadline);
  // An UNAVAILABLE one may have been applied all the same.
  absl::StatusOr<EtcdOutcome> Apply(const EtcdTransaction& transaction, TimePoint deadline);
  // A lease of the caller's own number; what was granted, which may be more than was asked for.
  absl::StatusOr<Duration> Grant(int64_t lease, Duration time, TimePoint deadline);
  // Renews it; 0: there is no such lease any more.
  absl::StatusOr<Duration> KeepAlive(int64_t lease, TimePoint deadline);
  // Ends it, and with it all keys on it. One that is gone already is fine.
  absl::Status Revoke(int64_t lease, TimePoint deadline);

  // The member that answered last.
  size_t current_member() const;

  // From any thread, once and for all: ends the present call and all later ones.
  void Cancel();

  // The address from which this machine reaches the members: one that is not loopback, where there
  // is one; empty: none is reached. No packet is sent.
  std::string LocalAddress() const;

 private:
  struct Connections;
  const std::unique_ptr<Connections> connections_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_ETCD_CLIENT_H_
