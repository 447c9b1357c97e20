// A stream over which nobody joins, on a connection that the port has no reason to close.
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

}  // namespace
}  // namespace ddprun::rendezvous
