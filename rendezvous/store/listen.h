// The store's listening socket. Internal.
#ifndef DDPRUN_RENDEZVOUS_STORE_LISTEN_H_
#define DDPRUN_RENDEZVOUS_STORE_LISTEN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/store/store_server.h"

namespace ddprun::rendezvous {

// As OpenListeningSocket, with a backlog as large as the system allows. FailedPrecondition: the
// port is taken.
// REQUIRES: bind is not kNone.
absl::StatusOr<UniqueFd> ListenForStore(StoreServer::Bind bind, uint16_t port);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_STORE_LISTEN_H_
