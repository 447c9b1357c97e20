// Who may say what to the coordinator: every kind of message, by who says it.
#include <doctest/doctest.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <string>
#include <variant>
#include <vector>

#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/core/rendezvous_machine.h"
#include "rendezvous/net/channel.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/server/coordinator.h"
#include "rendezvous/wire/convert.h"
#include "tests/rendezvous/core/builders.h"
#include "tests/rendezvous/core/machine_view.h"
#include "tests/rendezvous/server/over_sockets.h"
#include "tests/support/contains.h"

namespace ddprun::rendezvous {
namespace {

using testing::At;
using testing::FirstStart;
using testing::Join;
using testing::kTestJob;
using testing::TestPolicy;
using namespace std::chrono_literals;  // NOLINT: durations

// Node "a" has the job's only place, "b" is a spare, and nobody has joined over session 3.
constexpr uint64_t kMember = 1, kSpare = 2, kStranger = 3;

// The table of docs/internals/security-model.md. Nobody may do more by saying it again, or out of
// turn.
struct Row {
  std::string kind;  // AgentMessage's
  Event event;       // of node "a" where it names one
  bool is_for_strangers, is_for_spares, is_for_members;
};

std::vector<Row> Table() {
  const Policy policy = TestPolicy(1, 1);
  return {
      {"join", Join(policy, "a", 0), true, true, true},
      {"heartbeat", HeartbeatReceived{}, false, true, true},
      {"leave", NodeLeft{.stamp = {}, .reason = "done"}, false, true, true},
      {"workers_failed", WorkersFailed{}, false, false, true},
      {"first_worker_succeeded", FirstWorkerSucceeded{}, false, false, true},
      {"workers_succeeded", WorkersSucceeded{}, false, false, true},
      {"verdict_ack", VerdictAcked{}, false, false, false},  // as there is no verdict yet
      {"question", QuestionAsked{{}, {.id = 1, .to = {}, .body = "x"}}, false, true, true},
      {"answer", AnswerGiven{{}, 1, "x"}, false, true, true},
      {"stop", StopOrdered{{}, StopHow::kGracefully, "x"}, false, true, true},
      {"health", HealthChecked{{}, {Health::kHealthy, "x"}}, false, true, true},
  };
}

// As it comes over the wire, in round 1, over `session`.
Event Heard(const Row& row, uint64_t session) {
  absl::StatusOr<v1::AgentMessage> message = ToProto(row.event, Duration(0));
  REQUIRE_MESSAGE(message.ok(), message.status().ToString());
  absl::StatusOr<Event> event = FromProto(*message);
  REQUIRE_MESSAGE(event.ok(), row.kind, ": ", event.status().ToString());
  std::visit(
      [session](auto& any) {
        if constexpr (requires { any.stamp; }) {
          any.stamp = {SessionId{session}, Epoch{1}, Round{1}, kTestJob};
        }
      },
      *event);
  if (auto* joined = std::get_if<NodeJoined>(&*event)) {
    const char* names[] = {"a", "b", "c"};
    joined->node.id = NodeId{names[session - 1]};
    joined->source_addr = "10.0.0.1";
    joined->accepted_addr = "10.0.0.100";
  }
  return *std::move(event);
}

// Whether the machine heeds it of node "a" while it waits for another one.
bool IsHeededOfWaiting(const Row& row) {
  const Policy policy = TestPolicy(2, 2);
  RendezvousMachine machine(policy, FirstStart(), At(0s));
  machine.Step(At(0s), Join(policy, "a", kMember));
  machine.Step(At(1s), Heard(row, kMember));
  return RenderState(machine, At(1s)).find("ignored=0") != std::string::npos;
}

// Whether the machine heeds it.
bool IsHeeded(const Row& row, uint64_t session) {
  const Policy policy = TestPolicy(1, 1);
  RendezvousMachine machine(policy, FirstStart(), At(0s));
  machine.Step(At(0s), Join(policy, "a", kMember));
  machine.Step(At(1s), Join(policy, "b", kSpare));
  REQUIRE(RenderState(machine, At(1s)) == Contains("ignored=0"));
  machine.Step(At(1s), Heard(row, session));
  return RenderState(machine, At(1s)).find("ignored=0") != std::string::npos;
}

TEST_CASE("authorisation: there is a row for every kind of message") {
  const auto* kinds = v1::AgentMessage::descriptor()->FindOneofByName("kind");
  REQUIRE(kinds != nullptr);
  const std::vector<Row> rows = Table();
  REQUIRE(kinds->field_count() == static_cast<int>(rows.size()));
  for (int i = 0; i < kinds->field_count(); ++i) CHECK(kinds->field(i)->name() == rows[i].kind);
  // Beside Attach there is Look alone, which anybody may call.
  const auto* service = v1::AgentMessage::descriptor()->file()->service(0);
  REQUIRE(service->method_count() == 2);
  CHECK(service->method(1)->name() == "Look");
}

TEST_CASE("authorisation: what is heeded of a member, of who waits, and of who has not joined") {
  for (const Row& row : Table()) {
    CAPTURE(row.kind);
    CHECK(IsHeeded(row, kMember) == row.is_for_members);
    CHECK(IsHeeded(row, kSpare) == row.is_for_spares);
    CHECK(IsHeededOfWaiting(row) == row.is_for_spares);
    CHECK(IsHeeded(row, kStranger) == row.is_for_strangers);
  }
}

TEST_CASE("authorisation: once the job is over who has joined may say that it has heard so") {
  const Policy policy = TestPolicy(1, 1);
  const Row row{.kind = "verdict_ack",
                .event = VerdictAcked{},
                .is_for_strangers = false,
                .is_for_spares = true,
                .is_for_members = true};
  RendezvousMachine machine(policy, FirstStart(), At(0s));
  machine.Step(At(0s), Join(policy, "a", kMember));
  machine.Step(At(1s), Join(policy, "b", kSpare));
  machine.Step(At(1s), WorkersSucceeded{{SessionId{kMember}, Epoch{1}, Round{1}, kTestJob}});
  machine.Step(At(1s), Recorded{});
  REQUIRE(machine.verdict());
  const auto ignored = [&] {
    const std::string state = RenderState(machine, At(1s));
    return std::stoi(state.substr(state.find("ignored=") + 8));
  };
  machine.Step(At(1s), Heard(row, kStranger));
  CHECK(ignored() == 1);
  machine.Step(At(1s), Heard(row, kMember));
  CHECK_FALSE(machine.is_finished());
  machine.Step(At(1s), Heard(row, kSpare));
  CHECK(machine.is_finished());
  CHECK(ignored() == 1);
}

TEST_CASE("authorisation: a stream that begins with anything but a join is ended") {
  const auto coordinator = StartListening(TestPolicy(1, 1));
  for (const Row& row : Table()) {
    if (row.is_for_strangers) continue;
    // A connection of its own: over one, strangers may open two streams and one more a second.
    const auto stub = v1::Rendezvous::NewStub(
        MakeChannel(ResolveName("127.0.0.1", coordinator->port()).addresses.front()));
    CAPTURE(row.kind);
    grpc::ClientContext call;
    call.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
    const auto stream = stub->Attach(&call);
    stream->Write(*ToProto(row.event, Duration(0)));
    const grpc::Status status = stream->Finish();
    CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
    CHECK(status.error_message() == "the first message of a stream must be a join");
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
