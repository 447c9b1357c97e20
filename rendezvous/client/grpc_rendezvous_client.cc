#include "rendezvous/client/grpc_rendezvous_client.h"

#include <utility>

#include "rendezvous/client/grpc_client_loop.h"

namespace ddprun::rendezvous {
namespace {

class GrpcRendezvousClient final : public RendezvousClient {
 public:
  GrpcRendezvousClient(GrpcClientOptions options, EventHandler handler)
      : loop_(std::move(options), std::move(handler)) {}

  void Join(const NodeInfo& node) override { loop_.Join(node); }
  void ReportFailed(Round round, const FailureReport& report, TimePoint at) override {
    loop_.Say([&](AgentRecord& record) { record.ReportFailed(round, report, at); });
  }
  void ReportFirstSuccess(Round round, int rank, TimePoint at) override {
    loop_.Say([&](AgentRecord& record) { record.ReportFirstSuccess(round, rank, at); });
  }
  void ReportSucceeded(Round round) override {
    loop_.Say([&](AgentRecord& record) { record.ReportSucceeded(round); });
  }
  void Leave(const std::string& reason) override {
    loop_.Say([&](AgentRecord& record) { record.Leave(reason); });
  }
  void AckVerdict() override {
    loop_.Say([](AgentRecord& record) { record.AckVerdict(); });
  }
  void FlushAndStop(Duration timeout) override { loop_.FlushAndStop(timeout); }

 private:
  GrpcClientLoop loop_;
};

}  // namespace

std::unique_ptr<RendezvousClient> StartGrpcClient(GrpcClientOptions options,
                                                  RendezvousClient::EventHandler handler) {
  return std::make_unique<GrpcRendezvousClient>(std::move(options), std::move(handler));
}

}  // namespace ddprun::rendezvous
