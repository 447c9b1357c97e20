// Streams over which nobody joins: in silence, on a connection that the port has no reason to
// close, or with bytes that are no message.
#include <doctest/doctest.h>
#include <grpcpp/grpcpp.h>

#include <chrono>

#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/net/channel.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/server/coordinator.h"
#include "rendezvous/wire/convert.h"
#include "tests/rendezvous/server/event_log.h"
#include "tests/rendezvous/server/over_sockets.h"
#include "tests/support/contains.h"

namespace ddprun::rendezvous {
namespace {

TEST_CASE("grpc: a stream without a join ends, though its connection has joined by another") {
  auto coordinator = StartListening(TestPolicy(1, 1));
  const auto stub = v1::Rendezvous::NewStub(
      MakeChannel(ResolveName("127.0.0.1", coordinator->port()).addresses.front()));
  const auto give_up = std::chrono::system_clock::now() + std::chrono::minutes(1);
  grpc::ClientContext joined_call;
  grpc::ClientContext silent_call;
  joined_call.set_deadline(give_up);
  silent_call.set_deadline(give_up);
  NodeJoined join;
  join.node = TestNode("a");
  join.policy = TestPolicy(1, 1);
  const auto joined = stub->Attach(&joined_call);
  const auto silent = stub->Attach(&silent_call);
  REQUIRE(joined->Write(*ToProto(join, Duration(0))));
  v1::CoordinatorMessage message;
  REQUIRE(joined->Read(&message));
  CHECK_FALSE(silent->Read(&message));
  CHECK(silent->Finish().error_message() == "no join came within 5 s");
  joined_call.TryCancel();
  CHECK(joined->Finish().error_code() == grpc::StatusCode::CANCELLED);
}

TEST_CASE("grpc: a message that does not parse is called malformed") {
  auto coordinator = StartListening(TestPolicy(1, 1));
  const auto stub = v1::Rendezvous::NewStub(
      MakeChannel(ResolveName("127.0.0.1", coordinator->port()).addresses.front()));
  grpc::ClientContext call;
  call.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
  v1::AgentMessage message;
  message.mutable_join()->set_host("\xff");  // no UTF-8, which only the reader minds
  const auto stream = stub->Attach(&call);
  REQUIRE(stream->Write(message));
  const grpc::Status status = stream->Finish();
  CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(status.error_message() == "the message does not parse");
}

TEST_CASE("grpc: a message beyond its limit ends its stream, and is told the limit") {
  auto coordinator = StartListening(TestPolicy(1, 1));
  // An agent of ours would not send these.
  const auto stub = v1::Rendezvous::NewStub(
      MakeForeignChannel(ResolveName("127.0.0.1", coordinator->port()).addresses.front(),
                         grpc::InsecureChannelCredentials(), ""));
  NodeJoined join;
  join.node = TestNode("a");
  join.policy = TestPolicy(1, 1);
  const v1::AgentMessage joins = *ToProto(join, Duration(0));
  {
    grpc::ClientContext call;
    call.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
    v1::AgentMessage large = joins;
    large.mutable_join()->set_role(std::string(70'000, 'r'));
    const auto stream = stub->Attach(&call);
    REQUIRE(stream->Write(large));
    const grpc::Status status = stream->Finish();
    CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
    CHECK(status.error_message() ==
          "join of " + std::to_string(large.ByteSizeLong()) + " bytes, at most 65536 are accepted");
  }
  // What is larger than any message may be is gRPC's to refuse. Who has not joined may not send so
  // much at all.
  grpc::ClientContext call;
  call.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
  const auto stream = stub->Attach(&call);
  REQUIRE(stream->Write(joins));
  v1::CoordinatorMessage message;
  REQUIRE(stream->Read(&message));
  v1::AgentMessage large;
  large.mutable_leave()->set_reason(std::string(300'000, 'r'));
  REQUIRE(stream->Write(large));
  while (stream->Read(&message)) {
  }
  const grpc::Status status = stream->Finish();
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(status.error_message() == Contains("larger than max"));
}

}  // namespace
}  // namespace ddprun::rendezvous
