// gRPC's channel to an agent of the job: plain, or through a tunnel.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_TUNNEL_CHANNEL_H_
#define DDPRUN_RENDEZVOUS_CLIENT_TUNNEL_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>

#include "rendezvous/client/tunnels.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {

// `tunnels` null: plain.
std::shared_ptr<grpc::Channel> ChannelTo(const SocketAddress& address, Tunnels* tunnels);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_TUNNEL_CHANNEL_H_
