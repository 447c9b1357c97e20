// The gRPC service: each Attach call becomes a session. Converts and posts; decides nothing.
#ifndef DDPRUN_RENDEZVOUS_SERVER_SERVICE_H_
#define DDPRUN_RENDEZVOUS_SERVER_SERVICE_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/net/connection_table.h"
#include "rendezvous/server/session.h"

namespace ddprun::rendezvous {

class RendezvousService final : public v1::Rendezvous::CallbackService {
 public:
  // `run_id`: FrontendOptions.
  RendezvousService(std::shared_ptr<Inbox> inbox, std::function<std::string()> run_id,
                    ConnectionTable& connections)
      : inbox_(std::move(inbox)), run_id_(std::move(run_id)), connections_(connections) {}

  grpc::ServerBidiReactor<v1::AgentMessage, v1::CoordinatorMessage>* Attach(
      grpc::CallbackServerContext* context) override;

 private:
  const std::shared_ptr<Inbox> inbox_;
  const std::function<std::string()> run_id_;
  ConnectionTable& connections_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_SERVICE_H_
