#include "rendezvous/net/channel.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/credentials.h>

#include <string>

#include "absl/synchronization/mutex.h"
#include "rendezvous/net/library_log.h"
#include "rendezvous/wire/convert.h"

namespace ddprun::rendezvous {
namespace {

constexpr int kKeepaliveTimeMs = 5000;
constexpr int kKeepaliveTimeoutMs = 5000;
// A connection to the coordinator that has not finished its HTTP/2 handshake, or that has no
// stream, lives so long. Less than the 5 s that the port gives a connection to join: gRPC says why
// it closes one.
constexpr int kIdleConnectionMs = 4000;
constexpr int kMaxStreamsPerConnection = 16;
constexpr int kMaxMetadataBytes = 8 * 1024;
// What all connections together may buffer: 4,096 agents with a full message each fit four times.
constexpr size_t kServerMemoryBytes = size_t{4} << 30;

void OnGrpcLog(gpr_log_func_args* args) { LogFromLibrary(std::string("grpc: ") + args->message); }

void OnProtobufLog(google::protobuf::LogLevel, const char*, int, const std::string& message) {
  LogFromLibrary("protobuf: " + message);
}

// gRPC 1.51 runs callbacks on threads that it starts with the first user of its callback API and
// ends with the last. Ending them now and then aborts the process (a thread destroys the queue
// while another is still leaving it; seen in 1 of 25 test runs). So there is always one user: a
// channel that made one call, which was cancelled before it could connect anywhere.
class CallbackQueueHolder final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  CallbackQueueHolder()
      : channel_(
            grpc::CreateChannel("unix-abstract:ddprun-nobody", grpc::InsecureChannelCredentials())),
        stub_(channel_) {
    stub_.PrepareBidiStreamingCall(&context_, "/nothing", grpc::StubOptions(), this);
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
};

grpc::ChannelArguments ChannelArguments() {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // gRPC's shortest time between two attempts is also the time that an attempt has, to the server's
  // first frame. It stays at gRPC's 20 s: a coordinator that a thousand agents reach at once takes
  // a second to answer, and agents that hang up and come again are what keeps it from that. Whoever
  // opened the channel ends it earlier when nothing is heard.
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // A stream that broke is opened anew by our client, which says again what was said.
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessageBytes));
  args.SetMaxSendMessageSize(static_cast<int>(kMaxMessageBytes));
  return args;
}

}  // namespace

void PrepareGrpc() {
  // Never destroyed, and so is what it holds. Marked used, so that it stays reachable for
  // LeakSanitizer.
  [[gnu::used]] static CallbackQueueHolder* const holder = [] {
    gpr_set_log_function(OnGrpcLog);
    google::protobuf::SetLogHandler(OnProtobufLog);
    // A distribution's absl may be a debug build, which looks for deadlocks at every lock of
    // gRPC's, all threads one after the other: seven eighths of the coordinator's time where 2,048
    // agents join at once.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    return new CallbackQueueHolder;
  }();
}

std::shared_ptr<grpc::Channel> MakeChannel(const SocketAddress& address) {
  return grpc::CreateCustomChannel(GrpcTarget(address), grpc::InsecureChannelCredentials(),
                                   ChannelArguments());
}

std::shared_ptr<grpc::Channel> MakeChannelOver(UniqueFd socket) {
  return grpc::CreateCustomInsecureChannelFromFd("ddprun", socket.Release(), ChannelArguments());
}

std::shared_ptr<grpc::Channel> MakeForeignChannel(
    const SocketAddress& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    const std::string& tls_name) {
  PrepareGrpc();
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  if (!tls_name.empty()) args.SetSslTargetNameOverride(tls_name);
  return grpc::CreateCustomChannel(GrpcTarget(address), credentials, args);
}

void ConfigureServer(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kIdleConnectionMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleConnectionMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessageBytes));
  builder.SetMaxSendMessageSize(static_cast<int>(kMaxMessageBytes));
  grpc::ResourceQuota quota("rendezvous");
  quota.Resize(kServerMemoryBytes);
  builder.SetResourceQuota(quota);
}

}  // namespace ddprun::rendezvous
