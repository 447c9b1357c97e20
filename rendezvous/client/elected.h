// The errands of an agent whose job's coordinator is agreed on by etcd: who leads, and to be the
// one. Both may take seconds.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_ELECTED_H_
#define DDPRUN_RENDEZVOUS_CLIENT_ELECTED_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/client/contact_core.h"
#include "rendezvous/client/look.h"
#include "rendezvous/etcd/etcd_client.h"
#include "rendezvous/net/interrupt.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/server/coordinator.h"
#include "rendezvous/tls/identity.h"

namespace ddprun::rendezvous {

struct LeaderLook : LookResult {
  int64_t revision = 0;  // of the leader's key; 0: there is none, or etcd does not say
};

// Asks etcd who leads, and unless `is_key_only` looks who listens there, by LookAt.
LeaderLook LookForLeader(EtcdClient& etcd, const EtcdOptions& where, const ContactOptions& options,
                         bool is_key_only, const Resolver& resolve,
                         const std::shared_ptr<const TlsIdentity>& identity,
                         const Interrupt& interrupt);

struct Candidacy {
  EtcdOptions etcd;
  std::string run_id;
  std::string local_addr;  // what the others reach this machine by; empty: found out
  std::string host_name;
  int64_t seen_revision = 0;
  bool is_leader_gone = false;  // Leadership's
  Duration job_time{0};
  Resolver resolver = ResolveName;
  std::function<void(const std::string&)> on_lost;  // Leadership's
  size_t first_member = 0;  // of etcd, to be asked: the one that answered last
};
struct ElectedHost {
  Hosted answer;
  std::unique_ptr<Coordinator> coordinator;  // kHosting
};
// A coordinator on a free port of this machine, as the job's leader if etcd agrees.
ElectedHost HostAsLeader(Candidacy candidacy, Coordinator::Options start, const Clock& clock);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_ELECTED_H_
