// The gRPC service: each Attach call becomes a session. Converts and posts; decides nothing.
#ifndef DDPRUN_RENDEZVOUS_SERVER_SERVICE_H_
#define DDPRUN_RENDEZVOUS_SERVER_SERVICE_H_

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/server/probation.h"
#include "rendezvous/server/session.h"

namespace ddprun::rendezvous {

// On which of our addresses each remote connection came in, which gRPC does not tell. Keyed by the
// other end ("10.0.0.2:41234"), which a machine has once at a time. Thread-safe; bounded: the
// oldest entries go first.
class AcceptedAddresses {
 public:
  static constexpr size_t kMaxEntries = 32768;

  void Add(const std::string& peer, const std::string& local_ip);
  // Empty: unknown.
  std::string Find(const std::string& peer) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> local_by_peer_;
  std::deque<std::string> order_;
};

// "ipv4:10.0.0.2:41234", "ipv6:%5B::1%5D:41234" -> "10.0.0.2:41234", "[::1]:41234"; an IPv4 address
// mapped into IPv6 is unwrapped. Empty: not such a thing.
std::string PeerFromGrpc(const std::string& grpc_peer);
// "10.0.0.2:41234" -> "10.0.0.2", "[::1]:41234" -> "::1".
std::string IpOfPeer(const std::string& peer);

class RendezvousService final : public v1::Rendezvous::CallbackService {
 public:
  RendezvousService(std::shared_ptr<Inbox> inbox, std::string run_id,
                    const AcceptedAddresses& accepted, Probation& probation)
      : inbox_(std::move(inbox)),
        run_id_(std::move(run_id)),
        accepted_(accepted),
        probation_(probation) {}

  grpc::ServerBidiReactor<v1::AgentMessage, v1::CoordinatorMessage>* Attach(
      grpc::CallbackServerContext* context) override;

 private:
  const std::shared_ptr<Inbox> inbox_;
  const std::string run_id_;
  const AcceptedAddresses& accepted_;
  Probation& probation_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_SERVICE_H_
