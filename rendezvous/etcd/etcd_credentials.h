// What a client of etcd shows and believes, as gRPC takes it.
#ifndef DDPRUN_RENDEZVOUS_ETCD_ETCD_CREDENTIALS_H_
#define DDPRUN_RENDEZVOUS_ETCD_ETCD_CREDENTIALS_H_

#include <grpcpp/security/credentials.h>

#include <memory>

#include "absl/status/statusor.h"
#include "rendezvous/etcd/etcd_options.h"

namespace ddprun::rendezvous {

// FailedPrecondition: a file of `options` is not there, or is not what it should be.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsFor(
    const EtcdOptions& options);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_ETCD_CREDENTIALS_H_
