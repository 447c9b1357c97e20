#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "absl/status/status.h"
#include "rendezvous/net/channel.h"
#include "rendezvous/server/frontend.h"
#include "rendezvous/server/port_listener.h"
#include "rendezvous/server/service.h"
#include "rendezvous/wire/checked_fields.h"
#include "rendezvous/wire/hello.h"

namespace ddprun::rendezvous {
namespace {

using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

// How long sessions may take to get out what they were told last.
constexpr std::chrono::seconds kShutdownGrace{1};

class GrpcFrontend final : public Frontend {
 public:
  GrpcFrontend(const FrontendOptions& options, std::shared_ptr<Inbox> inbox)
      : run_id_([run_id = options.run_id] { return CleanText(run_id()); }),
        service_(std::move(inbox), run_id_, connections_) {}

  ~GrpcFrontend() override {
    listener_.reset();
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
    server_->Wait();
  }

  absl::Status Start(UniqueFd listening_socket, FrontendOptions options) {
    grpc::ServerBuilder builder;
    ConfigureServer(builder);
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("gRPC could not start a server");
    absl::StatusOr<std::unique_ptr<PortListener>> listener = PortListener::Start(
        std::move(listening_socket),
        PortListener::Handlers{.on_store = std::move(options.on_store_connection),
                               .on_http2 = [this](UniqueFd fd) { Take(std::move(fd)); },
                               .on_no_descriptor = std::move(options.on_no_descriptor),
                               .connections = connections_,
                               .hello_reply =
                                   [this, is_apart = options.is_apart] {
                                     return MakeHelloReply({run_id_(), is_apart});
                                   }});
    if (!listener.ok()) return listener.status();
    listener_ = *std::move(listener);
    return absl::OkStatus();
  }

  uint16_t port() const override { return listener_->port(); }

 private:
  void Take(UniqueFd fd) {
    Acceptor::NewConnectionParameters connection;
    connection.fd = fd.Release();
    acceptor_->HandleNewConnection(&connection);
  }

  const std::function<std::string()> run_id_;  // clean text
  ConnectionTable connections_;
  RendezvousService service_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<PortListener> listener_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Frontend>> StartGrpcFrontend(FrontendOptions options,
                                                            std::shared_ptr<Inbox> inbox) {
  PrepareGrpc();
  auto frontend = std::make_unique<GrpcFrontend>(options, std::move(inbox));
  UniqueFd listening_socket = std::move(options.listening_socket);
  absl::Status status = frontend->Start(std::move(listening_socket), std::move(options));
  if (!status.ok()) return status;
  return frontend;
}

}  // namespace ddprun::rendezvous
