#ifndef DDPRUN_RENDEZVOUS_NET_IDLE_LIMIT_H_
#define DDPRUN_RENDEZVOUS_NET_IDLE_LIMIT_H_

namespace ddprun::rendezvous {

// A connection to the coordinator that has not finished its HTTP/2 handshake, or that has no
// stream, lives so long. Less than the 5 s that the port gives a connection to join
// (rendezvous/server/probation.h): gRPC says why it closes one.
inline constexpr int kIdleConnectionMs = 4000;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_IDLE_LIMIT_H_
