#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "absl/status/status.h"
#include "rendezvous/net/channel.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/server/frontend.h"
#include "rendezvous/server/port_listener.h"
#include "rendezvous/server/probation.h"
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
      : service_(std::move(inbox), CleanText(options.run_id), accepted_, probation_) {}

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
                               .probation = probation_,
                               .hello_reply = MakeHelloReply(CleanText(options.run_id))});
    if (!listener.ok()) return listener.status();
    listener_ = *std::move(listener);
    return absl::OkStatus();
  }

  uint16_t port() const override { return listener_->port(); }

 private:
  void Take(UniqueFd fd) {
    const SocketAddress peer = PeerAddress(fd.get());
    if (peer.size == 0) return;  // reset meanwhile
    accepted_.Add(AddressText(peer), IpText(LocalAddress(fd.get())));
    Acceptor::NewConnectionParameters connection;
    connection.fd = fd.Release();
    acceptor_->HandleNewConnection(&connection);
  }

  AcceptedAddresses accepted_;
  Probation probation_;
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
