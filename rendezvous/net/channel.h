// Every setting of gRPC that this project needs, the client's and the server's, in one place.
//
// gRPC's defaults suit long-lived services, not a launcher: channels obey http_proxy even towards
// 127.0.0.1, share connections between channels, and print errors on stderr; servers punish pings
// more frequent than every 5 minutes.
#ifndef DDPRUN_RENDEZVOUS_NET_CHANNEL_H_
#define DDPRUN_RENDEZVOUS_NET_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <string>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {

// Called before anything else of gRPC's; the first call counts. Takes the log functions of gRPC and
// Protobuf, which print on stderr otherwise (library_log.h), keeps gRPC's callback threads for the
// life of the process, and lets absl look for no deadlocks among gRPC's locks.
void PrepareGrpc();

// A channel to `address` and nowhere else. Connects lazily.
std::shared_ptr<grpc::Channel> MakeChannel(const SocketAddress& address);

// A channel over `socket`, a connection that somebody else has made; it ends with that.
std::shared_ptr<grpc::Channel> MakeChannelOver(UniqueFd socket);

// A channel to a server that is not ours, etcd's. `tls_name`: whom its certificate must name;
// empty: no TLS. Connects lazily; who has waited in vain lets go of it, as it tries again less and
// less.
std::shared_ptr<grpc::Channel> MakeForeignChannel(
    const SocketAddress& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    const std::string& tls_name);

// The matching limits on the coordinator's side.
void ConfigureServer(grpc::ServerBuilder& builder);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_CHANNEL_H_
