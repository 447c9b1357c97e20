// Whether an etcd member answers, before gRPC is told to connect to it.
#ifndef DDPRUN_RENDEZVOUS_ETCD_MEMBER_PROBE_H_
#define DDPRUN_RENDEZVOUS_ETCD_MEMBER_PROBE_H_

#include "absl/status/statusor.h"
#include "rendezvous/base/time.h"
#include "rendezvous/net/interrupt.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {

// Connects to `address`, begins HTTP/2 in the clear, and waits until `by` for a first byte,
// whatever it is. Whether what has come is HTTP/2. DEADLINE_EXCEEDED: none came; UNAVAILABLE: none
// can come. The message is the cause alone. CANCELLED: nobody wants it any more.
//
// gRPC 1.51 keeps the socket of a connection for ever that breaks before the server's first frame,
// as the kernel of a member that is stopped makes them: an agent lost 400 descriptors in 40 minutes
// in which members were stopped and killed.
absl::StatusOr<bool> ProbeMember(const SocketAddress& address, TimePoint by,
                                 const Interrupt& cancelled);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_MEMBER_PROBE_H_
