// The rendezvous client of an agent whose coordinator is reached over the network.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_GRPC_RENDEZVOUS_CLIENT_H_
#define DDPRUN_RENDEZVOUS_CLIENT_GRPC_RENDEZVOUS_CLIENT_H_

#include <chrono>
#include <memory>

#include "rendezvous/base/time.h"
#include "rendezvous/client/rendezvous_client.h"
#include "rendezvous/client/seeker.h"
#include "rendezvous/net/resolver.h"

namespace ddprun::rendezvous {

struct GrpcClientOptions {
  Endpoint endpoint;
  // As this node was started. Its join_timeout is how long an agent without workers goes on without
  // a coordinator, from its last contact or its last Join, whichever is later. An agent with
  // workers goes on without end.
  Policy policy;
  Resolver resolver = ResolveName;
};

// Begins to look for the coordinator at once, on a thread of its own, which is also where events
// come from. A broken stream is reported (ContactLost) and replaced without end: the agent decides
// how long its workers live without a coordinator. ContactLost may come again while contact is
// lost, when `is_refused` changes.
std::unique_ptr<RendezvousClient> StartGrpcClient(GrpcClientOptions options,
                                                  RendezvousClient::EventHandler handler);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_GRPC_RENDEZVOUS_CLIENT_H_
