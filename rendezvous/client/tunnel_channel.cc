#include "rendezvous/client/tunnel_channel.h"

#include <utility>

#include "rendezvous/net/channel.h"

namespace ddprun::rendezvous {

std::shared_ptr<grpc::Channel> ChannelTo(const SocketAddress& address, Tunnels* tunnels) {
  if (tunnels == nullptr) return MakeChannel(address);
  UniqueFd near_end = tunnels->Open(address);
  if (near_end.is_open()) return MakeChannelOver(std::move(near_end));
  // No descriptor is left. Nobody can listen on port 0: the call fails as any that finds nobody.
  return MakeChannel(*ParseIp("127.0.0.1", 0));
}

}  // namespace ddprun::rendezvous
