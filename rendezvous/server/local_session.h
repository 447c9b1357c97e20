// The way of an agent that lives in the coordinator's own process: no bytes, no socket.
#ifndef DDPRUN_RENDEZVOUS_SERVER_LOCAL_SESSION_H_
#define DDPRUN_RENDEZVOUS_SERVER_LOCAL_SESSION_H_

#include <memory>

#include "rendezvous/client/rendezvous_client.h"
#include "rendezvous/server/session.h"

namespace ddprun::rendezvous {

// A client of the coordinator behind `inbox`, for a node started with `policy`, heard on that
// coordinator's thread.
std::unique_ptr<RendezvousClient> AttachLocalSession(std::shared_ptr<Inbox> inbox, Policy policy,
                                                     RendezvousClient::EventHandler handler);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_LOCAL_SESSION_H_
