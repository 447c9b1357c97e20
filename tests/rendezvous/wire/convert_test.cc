#include "rendezvous/wire/convert.h"

#include <doctest/doctest.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/rendezvous/server/event_log.h"
#include "tests/support/contains.h"

namespace ddprun::rendezvous {
namespace {

v1::AgentMessage JoinMessage() {
  NodeJoined joined;
  joined.stamp = Stamp{{}, Epoch{7}, Round{3}};
  joined.node = TestNode("node-1", 4001);
  joined.node.local_world_size = 8;
  joined.node.cluster = {.job = "Slurm job 12", .step = "Slurm step 12.0", .nodes = 4, .node = 3};
  joined.node.program = ~uint64_t{5};
  joined.policy = TestPolicy(2, 4);
  joined.held = Assignment{};
  joined.held->master_addr = "10.0.0.1";
  joined.held->master_port = 29500;
  joined.held->restart_count = joined.restart_count = 2;
  joined.held->max_restarts = joined.max_restarts = 3;
  const auto message = ToProto(joined, Duration{0});
  REQUIRE(message.ok());
  return *message;
}

TEST_CASE("convert: a join survives the wire") {
  const auto event = FromProto(JoinMessage());
  REQUIRE(event.ok());
  const NodeJoined& joined = std::get<NodeJoined>(*event);
  CHECK(joined.stamp.epoch == Epoch{7});
  CHECK(joined.stamp.round == Round{3});
  CHECK(joined.node.id.value == "node-1");
  CHECK(joined.node.node_rank == -1);
  CHECK(joined.node.local_world_size == 8);
  CHECK(joined.node.cluster == ClusterPlace{"Slurm job 12", "Slurm step 12.0", 4, 3});
  CHECK(joined.node.program == ~uint64_t{5});
  CHECK(joined.policy.max_nodes == 4);
  CHECK(joined.node.store_port == 4001);
  REQUIRE(joined.held);
  CHECK(joined.held->round == Round{3});
  CHECK(joined.held->master_port == 29500);
  CHECK(joined.restart_count == 2);
  CHECK(joined.max_restarts == 3);
}

TEST_CASE("convert: restarts are those of the round that is held, or else the join's own") {
  v1::AgentMessage message = JoinMessage();
  v1::Join& join = *message.mutable_join();
  SUBCASE("an older release tells them of a held round alone") {
    join.clear_restart_count();
    join.clear_max_restarts();
  }
  SUBCASE("a node without workers") { join.clear_held(); }
  SUBCASE("what contradicts the round does not count") { join.set_restart_count(3); }
  const auto event = FromProto(message);
  REQUIRE(event.ok());
  CHECK(std::get<NodeJoined>(*event).restart_count == 2);
  CHECK(std::get<NodeJoined>(*event).max_restarts == 3);
}

TEST_CASE(
    "convert: the rules of bad nodes and a node's health survive; without them there are none") {
  NodeJoined joined;
  joined.node = TestNode("node-1", 4001);
  joined.policy = TestPolicy(2, 4);
  const auto over_the_wire = [](const Event& event) {
    const auto message = ToProto(event, Duration{0});
    REQUIRE(message.ok());
    const auto back = FromProto(*message);
    REQUIRE(back.ok());
    return *back;
  };
  const auto none = std::get<NodeJoined>(over_the_wire(joined));
  CHECK(none.policy.bad_nodes == BadNodeRules{});
  CHECK(none.node.health == HealthReport{});
  joined.policy.bad_nodes = {.has_check = true,
                             .check_timeout = std::chrono::seconds(60),
                             .refuses_unknown = true,
                             .max_failures = 0,
                             .failure_rounds = 10,
                             .quarantine = std::chrono::hours(1),
                             .max_bad_nodes = 3};
  joined.node.health = {Health::kBad, "GPU 3 is lost"};
  const auto all = std::get<NodeJoined>(over_the_wire(joined));
  CHECK(all.policy.bad_nodes == joined.policy.bad_nodes);
  CHECK(all.node.health == joined.node.health);
  for (const Health health : {Health::kHealthy, Health::kBad, Health::kUnknown}) {
    const HealthChecked checked{{}, {health, std::string(400, 'x')}};
    const auto back = std::get<HealthChecked>(over_the_wire(checked));
    CHECK(back.report == HealthReport{health, std::string(kMaxHealthLineBytes, 'x')});
  }
}

TEST_CASE("convert: when nodes are taken in, and why workers have ended, survive") {
  const auto over_the_wire = [](const Event& event) {
    return FromProto(ToProto(event, Duration{0}).value()).value();
  };
  NodeJoined joined;
  joined.node = TestNode("node-1", 4001);
  joined.policy = TestPolicy(2, 4);
  for (const ScaleUp scale_up : {ScaleUp::kNow, ScaleUp::kRestart, ScaleUp::kGraceful}) {
    joined.policy.scale_up = scale_up;
    CHECK(std::get<NodeJoined>(over_the_wire(joined)).policy.scale_up == scale_up);
  }
  for (const StopRead why : {StopRead::kNo, StopRead::kToScaleUp, StopRead::kToEnd}) {
    const WorkersSucceeded done{.stamp = {}, .stop_read = why};
    CHECK(std::get<WorkersSucceeded>(over_the_wire(done)).stop_read == why);
  }
}

TEST_CASE("convert: limits of restarts and a failure's step survive; without them there are none") {
  NodeJoined joined;
  joined.node = TestNode("node-1", 4001);
  joined.policy = TestPolicy(2, 4);
  const auto over_the_wire = [](const Event& event) {
    const auto message = ToProto(event, Duration{0});
    REQUIRE(message.ok());
    const auto back = FromProto(*message);
    REQUIRE(back.ok());
    return *back;
  };
  CHECK(std::get<NodeJoined>(over_the_wire(joined)).policy.limits == RestartLimits{});
  joined.policy.limits = {.max_same_failure = 2,
                          .max_node_losses = 0,
                          .max_preemptions = 7,
                          .backoff = std::chrono::milliseconds(500),  // no limit: a figure
                          .budget_period = std::chrono::hours(1)};
  CHECK(std::get<NodeJoined>(over_the_wire(joined)).policy.limits == joined.policy.limits);

  WorkersFailed failed;
  CHECK(std::get<WorkersFailed>(over_the_wire(failed)).report == failed.report);
  for (const int64_t step : {int64_t{0}, std::numeric_limits<int64_t>::max()}) {
    failed.report.step = step;
    failed.report.progress = std::chrono::hours(1);
    CHECK(std::get<WorkersFailed>(over_the_wire(failed)).report == failed.report);
  }
}

TEST_CASE("convert: whether a node leaves by a signal survives; an older release says no") {
  for (const bool is_by_signal : {false, true}) {
    const auto message = ToProto(NodeLeft{{}, "stopped by SIGTERM", is_by_signal}, Duration{0});
    REQUIRE(message.ok());
    CHECK(std::get<NodeLeft>(*FromProto(*message)).is_by_signal == is_by_signal);
  }
}

struct Row {
  const char* field;
  void (*spoil)(v1::AgentMessage&);
};
const Row kMalformed[] = {
    {"kind", [](v1::AgentMessage& m) { m.clear_kind(); }},
    {"join.node_id", [](v1::AgentMessage& m) { m.mutable_join()->clear_node_id(); }},
    {"join.host", [](v1::AgentMessage& m) { m.mutable_join()->set_host(std::string(300, 'x')); }},
    // Escaped, as it is said to other nodes, it is longer than it may be.
    {"join.host", [](v1::AgentMessage& m) { m.mutable_join()->set_host(std::string(100, '\1')); }},
    {"join.local_world_size",
     [](v1::AgentMessage& m) { m.mutable_join()->set_local_world_size(0); }},
    {"join.local_world_size",
     [](v1::AgentMessage& m) { m.mutable_join()->set_local_world_size(~0u); }},
    {"join.node_rank", [](v1::AgentMessage& m) { m.mutable_join()->set_node_rank(-2); }},
    {"join.cluster_step",
     [](v1::AgentMessage& m) { m.mutable_join()->set_cluster_step(std::string(300, 'x')); }},
    {"join.cluster_nodes", [](v1::AgentMessage& m) { m.mutable_join()->set_cluster_nodes(~0u); }},
    {"join.store_port", [](v1::AgentMessage& m) { m.mutable_join()->set_store_port(65536); }},
    {"join.store_port", [](v1::AgentMessage& m) { m.mutable_join()->set_store_port(0); }},
    {"policy.max_nodes",
     [](v1::AgentMessage& m) { m.mutable_join()->mutable_policy()->set_max_nodes(0); }},
    {"policy.min_nodes",
     [](v1::AgentMessage& m) { m.mutable_join()->mutable_policy()->set_min_nodes(5); }},
    {"policy.join_timeout_ms",
     [](v1::AgentMessage& m) {
       m.mutable_join()->mutable_policy()->set_join_timeout_ms(~uint64_t{0});
     }},
    {"policy.evict_after_ms",
     [](v1::AgentMessage& m) { m.mutable_join()->mutable_policy()->set_evict_after_ms(0); }},
    {"policy.max_restarts",
     [](v1::AgentMessage& m) { m.mutable_join()->mutable_policy()->set_max_restarts(~0u); }},
    {"policy.max_same_failure",
     [](v1::AgentMessage& m) { m.mutable_join()->mutable_policy()->set_max_same_failure(~0u); }},
    {"policy.max_node_losses",
     [](v1::AgentMessage& m) { m.mutable_join()->mutable_policy()->set_max_node_losses(~0u); }},
    {"policy.max_preemptions",
     [](v1::AgentMessage& m) { m.mutable_join()->mutable_policy()->set_max_preemptions(~0u); }},
    {"policy.scale_up",
     [](v1::AgentMessage& m) {
       m.mutable_join()->mutable_policy()->set_scale_up(static_cast<v1::JobPolicy::ScaleUp>(3));
     }},
    {"policy.restart_backoff_ms",
     [](v1::AgentMessage& m) {
       m.mutable_join()->mutable_policy()->set_restart_backoff_ms(~uint64_t{0});
     }},
    {"policy.restart_budget_period_ms",
     [](v1::AgentMessage& m) {
       m.mutable_join()->mutable_policy()->set_restart_budget_period_ms(~uint64_t{0});
     }},
    {"policy.bad_nodes.check_timeout_ms",
     [](v1::AgentMessage& m) {
       m.mutable_join()->mutable_policy()->mutable_bad_nodes()->set_check_timeout_ms(~uint64_t{0});
     }},
    {"policy.bad_nodes.failure_rounds",
     [](v1::AgentMessage& m) {
       m.mutable_join()->mutable_policy()->mutable_bad_nodes()->set_max_failures(1);
     }},
    {"health.line",
     [](v1::AgentMessage& m) {
       m.mutable_join()->mutable_health()->set_line(std::string(301, 'x'));
     }},
    {"policy.static_master_port",
     [](v1::AgentMessage& m) {
       m.mutable_join()->mutable_policy()->set_static_master_port(65536);
     }},
    {"policy.static_master_port",
     [](v1::AgentMessage& m) {
       m.mutable_join()->mutable_policy()->set_is_static(true);
       m.mutable_join()->mutable_policy()->set_static_master_addr("head");
       m.mutable_join()->mutable_policy()->set_static_master_port(0);
     }},
    {"policy.static_master_addr",
     [](v1::AgentMessage& m) {
       m.mutable_join()->mutable_policy()->set_is_static(true);
       m.mutable_join()->mutable_policy()->set_static_master_addr("");
     }},
    {"assignment.node_rank",
     [](v1::AgentMessage& m) { m.mutable_join()->mutable_held()->set_node_rank(1 << 20); }},
    {"assignment.first_rank",
     [](v1::AgentMessage& m) { m.mutable_join()->mutable_held()->set_first_rank(1 << 20); }},
    {"assignment.role_world_size",
     [](v1::AgentMessage& m) { m.mutable_join()->mutable_held()->set_role_world_size(1 << 20); }},
    {"assignment.master_port",
     [](v1::AgentMessage& m) { m.mutable_join()->mutable_held()->set_master_port(0); }},
    {"assignment.restart_count",
     [](v1::AgentMessage& m) { m.mutable_join()->mutable_held()->set_restart_count(~0u); }},
    {"join.restart_count", [](v1::AgentMessage& m) { m.mutable_join()->set_restart_count(~0u); }},
    {"join.max_restarts", [](v1::AgentMessage& m) { m.mutable_join()->set_max_restarts(~0u); }},
    {"first_worker_succeeded.rank",
     [](v1::AgentMessage& m) { m.mutable_first_worker_succeeded()->set_rank(~0u); }},
    {"first_worker_succeeded.age_us",
     [](v1::AgentMessage& m) { m.mutable_first_worker_succeeded()->set_age_us(~uint64_t{0}); }},
    {"failure.left_peer",
     [](v1::AgentMessage& m) {
       m.mutable_workers_failed()->mutable_failure()->set_exit_code(1);
       m.mutable_workers_failed()->mutable_failure()->set_left_peer(~0u);
     }},
    {"workers_failed.age_us",
     [](v1::AgentMessage& m) {
       m.mutable_workers_failed()->mutable_failure()->set_exit_code(1);
       m.mutable_workers_failed()->set_age_us(~uint64_t{0});
     }},
    {"failure.exit_code", [](v1::AgentMessage& m) { m.mutable_workers_failed(); }},
    {"failure.stderr_tail",
     [](v1::AgentMessage& m) {
       m.mutable_workers_failed()->mutable_failure()->set_exit_code(1);
       m.mutable_workers_failed()->mutable_failure()->set_stderr_tail(std::string(65537, 'x'));
     }},
    {"failure.error.message",
     [](v1::AgentMessage& m) {
       m.mutable_workers_failed()->mutable_failure()->set_exit_code(1);
       m.mutable_workers_failed()->mutable_failure()->mutable_error()->set_message(
           std::string(4097, 'x'));
     }},
    {"failure.error.traceback",
     [](v1::AgentMessage& m) {
       m.mutable_workers_failed()->mutable_failure()->set_exit_code(1);
       m.mutable_workers_failed()->mutable_failure()->mutable_error()->set_traceback(
           std::string(32769, 'x'));
     }},
};

TEST_CASE("convert: a join of another protocol is read as far as all releases agree") {
  v1::AgentMessage message;
  v1::Join& join = *message.mutable_join();
  join.set_run_id("job1");
  join.set_node_id("n1");
  join.set_host("b");
  join.set_protocol(ThisRelease().protocol + 1);
  join.set_version("9.0.0\n");
  join.set_node_rank(-77);  // which means something there
  join.mutable_held();
  absl::StatusOr<Event> event = FromProto(message);
  REQUIRE_MESSAGE(event.ok(), event.status().message());
  const auto& joined = std::get<NodeJoined>(*event);
  CHECK(joined.node.release ==
        Release{.protocol = ThisRelease().protocol + 1, .version = "9.0.0\\n"});
  CHECK(joined.node.host == "b");
  CHECK(joined.policy.run_id == "job1");
  CHECK(joined.held.has_value());
  // One that says no number is of the first protocol.
  join.clear_protocol();
  event = FromProto(message);
  REQUIRE(event.ok());
  CHECK(std::get<NodeJoined>(*event).node.release.protocol == kFirstProtocol);
  // One of ours is read as a whole.
  join.set_protocol(ThisRelease().protocol);
  event = FromProto(message);
  REQUIRE_FALSE(event.ok());
  CHECK(event.status().message().find("join.") == 0);
  join.set_protocol(65536);
  CHECK(FromProto(message).status().message().find("join.protocol") == 0);
}

TEST_CASE("convert: a malformed message is refused with the name of its field") {
  for (const Row& row : kMalformed) {
    v1::AgentMessage message = JoinMessage();
    row.spoil(message);
    const auto event = FromProto(message);
    CHECK_MESSAGE(event.status().code() == absl::StatusCode::kInvalidArgument, row.field);
    CHECK_MESSAGE(std::string(event.status().message()).find(row.field) == 0,
                  event.status().ToString());
  }
}

// Number 100, which no message has, of so many bytes.
void AddUnknownField(google::protobuf::Message& message, size_t bytes) {
  google::protobuf::UnknownFieldSet* unknown =
      message.GetReflection()->MutableUnknownFields(&message);
  unknown->AddLengthDelimited(100, std::string(bytes, 'x'));
}

absl::Status TooLarge(const std::string& kind, const v1::AgentMessage& message, int limit) {
  return absl::ResourceExhaustedError(absl::StrCat(kind, " of ", message.ByteSizeLong(),
                                                   " bytes, at most ", limit, " are accepted"));
}

TEST_CASE("convert: each kind of message has its own size limit") {
  v1::AgentMessage join = JoinMessage();
  join.mutable_join()->set_role(std::string(70000, 'r'));
  CHECK(FromProto(join).status() == TooLarge("join", join, 65536));
  v1::AgentMessage beat = ToProto(HeartbeatReceived{}, Duration{0}).value();
  AddUnknownField(beat, 5000);
  CHECK(FromProto(beat).status() == TooLarge("heartbeat", beat, 4096));
  v1::AgentMessage other = ToProto(WorkersSucceeded{}, Duration{0}).value();
  AddUnknownField(other, 100'000);
  CHECK(FromProto(other).ok());
  AddUnknownField(other, 200'000);
  CHECK(FromProto(other).status() == TooLarge("message", other, 262144));
}

TEST_CASE("convert: a beat says whether its agent works and a refusal says which kind it is") {
  for (const bool is_stuck : {false, true}) {
    const auto beat = FromProto(ToProto(HeartbeatReceived{{}, is_stuck}, Duration{0}).value());
    REQUIRE_MESSAGE(beat.ok(), beat.status().message());
    CHECK(std::get<HeartbeatReceived>(*beat).is_stuck == is_stuck);
  }
  for (const Refusal kind :
       {Refusal::kFinal, Refusal::kJobOver, Refusal::kOtherJob, Refusal::kRankHeld}) {
    const auto refused = FromProto(ToProto(Refuse{{}, kind, "why"}, Stamp{}, TimePoint{}), {});
    REQUIRE_MESSAGE(refused.ok(), refused.status().message());
    CHECK(std::get<Refuse>(*refused).kind == kind);
  }
}

TEST_CASE("convert: fields that only a newer release knows are ignored") {
  v1::AgentMessage beat = ToProto(HeartbeatReceived{}, Duration{0}).value();
  AddUnknownField(beat, 3000);
  const auto heard = FromProto(beat);
  REQUIRE_MESSAGE(heard.ok(), heard.status().message());
  CHECK(std::holds_alternative<HeartbeatReceived>(*heard));
  v1::AgentMessage message = JoinMessage();
  AddUnknownField(message, 3000);
  AddUnknownField(*message.mutable_join(), 3000);
  const auto joined = FromProto(message);
  REQUIRE_MESSAGE(joined.ok(), joined.status().message());
  CHECK(std::get<NodeJoined>(*joined).node.id.value == "node-1");
}

TEST_CASE("convert: a failure's age grows by half the round trip") {
  WorkersFailed failed;
  failed.report = TestFailure("a", 3);
  failed.report.error_file = "/tmp/e.json";
  failed.report.has_own_cause = true;
  failed.report.error = WorkerError{"ValueError: \xff\n", "Traceback\n  line\n", 1738324800};
  failed.age = std::chrono::milliseconds(10);                          // no limit: a figure
  const auto message = ToProto(failed, std::chrono::milliseconds(4));  // no limit: a figure
  REQUIRE(message.ok());
  const auto event = FromProto(*message);
  REQUIRE(event.ok());
  CHECK(std::get<WorkersFailed>(*event).age == std::chrono::milliseconds(12));
  CHECK(std::get<WorkersFailed>(*event).report == failed.report);
}

TEST_CASE("convert: what the coordinator says survives the wire") {
  const TimePoint now{std::chrono::seconds(100)};
  const Stamp current{{}, Epoch{9}, Round{2}, {3, 4}};
  Assignment assignment;
  assignment.instance = current.instance;
  assignment.epoch = Epoch{9};
  assignment.round = Round{2};
  assignment.node_rank = 1;
  assignment.node_count = 2;
  assignment.first_rank = 4;
  assignment.world_size = 8;
  assignment.role_world_size = 8;
  assignment.master_addr = "10.0.0.1";
  assignment.master_port = 4001;
  assignment.note = "node b is lost";
  assignment.round_key = std::string(31, '\xff') + '\0';
  Verdict verdict;
  verdict.exit_code = 137;
  verdict.reason = "rank 3 was killed";
  verdict.early_exit = "rank 1 had exited with 0 2.0 s before";
  verdict.limit = "the same failure 2 times";
  verdict.first_failure = TestFailure("a", 137);
  const Action actions[] = {
      Assign{{}, assignment},
      TellWaiting{{}, "1 of 2 nodes", now + std::chrono::seconds(5)},
      TellWaiting{{}, "spare", std::nullopt},
      Drain{{}, Epoch{9}, Round{2}, "a worker failed"},
      Drain{{}, Epoch{9}, Round{2}, "a worker aborted", true},
      Conclude{{}, Epoch{9}, Round{2}, verdict},
      Refuse{{}, Refusal::kFinal, "rank 1 is taken"},
      Refuse{{}, Refusal::kBadNode, "node a is bad"},
  };
  for (const Action& action : actions) {
    const auto back = FromProto(ToProto(action, current, now), now);
    REQUIRE_MESSAGE(back.ok(), back.status().ToString());
    CHECK(*back == action);
  }
}

TEST_CASE("convert: a round's key of another size is refused, and none is said back in a join") {
  const TimePoint now{std::chrono::seconds(100)};
  Assignment assignment;
  assignment.epoch = Epoch{9};
  assignment.round = Round{2};
  assignment.master_addr = "10.0.0.1";
  assignment.master_port = 4001;
  assignment.round_key = std::string(31, 'k');
  const auto back = FromProto(ToProto(Assign{{}, assignment}, {}, now), now);
  CHECK(absl::IsInvalidArgument(back.status()));
  CHECK(back.status().message() == Contains("round_key: size 31, not 32"));
  NodeJoined joined;
  joined.held = assignment;
  const auto said = ToProto(joined, Duration{0});
  REQUIRE(said.ok());
  CHECK(said->SerializeAsString() != Contains("kkkk"));
}

TEST_CASE("convert: text is cleaned of control characters and bytes that are no UTF-8") {
  CHECK(CleanText("plain gr\xc3\xbc\xc3\x9f") == "plain gr\xc3\xbc\xc3\x9f");
  CHECK(CleanText("a\x1b[31mb\n") == "a\\x1b[31mb\\n");
  CHECK(CleanText("\xff\xc3") == "\\xff\\xc3");
  CHECK(CleanText("\xc2\x9b") == "\\xc2\\x9b");
  CHECK(CleanText("\xed\xa0\x80") == "\\xed\\xa0\\x80");
  CHECK(CleanText(std::string(10000, 'x')).size() == kMaxTextBytes);
}

}  // namespace
}  // namespace ddprun::rendezvous
