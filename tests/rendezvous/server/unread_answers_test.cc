// An agent that has asked much and does not read.
#include <doctest/doctest.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <string>

#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/net/channel.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/server/coordinator.h"
#include "rendezvous/wire/convert.h"
#include "tests/rendezvous/server/event_log.h"
#include "tests/rendezvous/server/over_sockets.h"

namespace ddprun::rendezvous {
namespace {

// More than the coordinator keeps of anything else, and than lies in buffers on the way.
constexpr uint64_t kQuestions = 120;
// An answer that comes later than this is passed by those of later questions.
constexpr Duration kPatience = std::chrono::seconds(20);

TEST_CASE("grpc: answers that an agent has not read yet do not cost it its place") {
  const auto coordinator = StartListening(TestPolicy(2, 2));
  EventLog log;
  const auto other = Connect(coordinator->port(), TestPolicy(2, 2), log);
  other->Join(TestNode("b", 4002));
  const auto stub = v1::Rendezvous::NewStub(
      MakeChannel(ResolveName("127.0.0.1", coordinator->port()).addresses.front()));
  grpc::ClientContext call;
  call.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
  const auto stream = stub->Attach(&call);
  NodeJoined join;
  join.node = TestNode("a");
  join.policy = TestPolicy(2, 2);
  REQUIRE(stream->Write(*ToProto(join, Duration(0))));
  REQUIRE(log.Await<Assigned>());
  const std::string big(kMaxAnswerBytes, 'x');
  for (uint64_t id = 1; id <= kQuestions; ++id) {
    const QuestionAsked asked{
        {}, {.id = id, .to = NodeId{"b"}, .body = std::to_string(id), .patience = kPatience}};
    REQUIRE(stream->Write(*ToProto(asked, Duration(0))));
    const auto heard = log.Await<Asked>();
    REQUIRE_MESSAGE(heard, log.Text());
    other->Answer(heard->id, big);
    // A client passes on so many answers at a time: this one has to be through before the next.
    other->Ask({.id = id, .to = NodeId{"nobody"}, .body = "are you through?"});
    REQUIRE(log.Await<Answered>());
  }
  // What is not an answer passes them.
  other->OrderStop(StopHow::kAfterStep, "why not");
  uint64_t answers = 0, answers_before_stop = kQuestions;
  v1::CoordinatorMessage message;
  while (answers < kQuestions && stream->Read(&message)) {
    if (message.has_stop_after_step()) answers_before_stop = answers;
    if (!message.has_answers()) continue;
    CHECK(message.answers().id() == ++answers);
  }
  CHECK(answers == kQuestions);
  CHECK(answers_before_stop < kQuestions);
  call.TryCancel();
  CHECK(stream->Finish().error_code() == grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace ddprun::rendezvous
