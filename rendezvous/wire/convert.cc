#include "rendezvous/wire/convert.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "rendezvous/wire/checked_fields.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;

uint64_t MicrosecondsOf(Duration duration) {
  return static_cast<uint64_t>(std::max<int64_t>(0, duration_cast<microseconds>(duration).count()));
}

void FailureToProto(const FailureReport& report, v1::Failure& out) {
  out.set_node_id(CleanText(report.node.value));
  out.set_host(CleanText(report.host));
  out.set_node_rank(report.node_rank);
  out.set_rank(report.rank);
  out.set_local_rank(report.local_rank);
  out.set_pid(report.pid);
  out.set_exit_code(report.exit_code);
  out.set_signal(report.signal);
  out.set_dumped_core(report.dumped_core);
  out.set_message(CleanText(report.message));
  const std::string& tail = report.stderr_tail;
  out.set_stderr_tail(tail.substr(tail.size() - std::min(tail.size(), kMaxStderrTailBytes)));
  out.set_unix_time_ms(report.unix_time_ms);
  out.set_error_file(CleanText(report.error_file));
  if (report.left_peer) out.set_left_peer(*report.left_peer);
  if (!report.error) return;
  v1::WorkerError& error = *out.mutable_error();
  error.set_message(report.error->message.substr(0, kMaxErrorMessageBytes));
  error.set_traceback(report.error->traceback.substr(0, kMaxTracebackBytes));
  error.set_unix_time_s(report.error->unix_time_s);
}

// The end of the year 9999.
constexpr int64_t kMaxUnixTime = 253402300799;

FailureReport FailureFromProto(const v1::Failure& in, CheckedFields& check) {
  FailureReport report;
  report.node.value = check.Text("failure.node_id", in.node_id(), 0, 256);
  report.host = check.Text("failure.host", in.host(), 0, 256);
  report.node_rank = check.Range("failure.node_rank", in.node_rank(), 0, kMaxRank);
  report.rank = check.Range("failure.rank", in.rank(), 0, kMaxRank);
  report.local_rank = check.Range("failure.local_rank", in.local_rank(), 0, kMaxRank);
  report.pid = check.Range("failure.pid", in.pid(), 0, std::numeric_limits<int>::max());
  report.exit_code = check.Range("failure.exit_code", in.exit_code(), 1, 255);
  report.signal = check.Range("failure.signal", in.signal(), 0, 127);
  report.dumped_core = in.dumped_core();
  report.message = check.Text("failure.message", in.message(), 0, kMaxTextBytes);
  check.Size("failure.stderr_tail", in.stderr_tail().size(), kMaxStderrTailBytes);
  report.stderr_tail = in.stderr_tail();
  report.unix_time_ms =
      check.Range("failure.unix_time_ms", in.unix_time_ms(), 0, kMaxUnixTime * 1000);
  report.error_file = check.Text("failure.error_file", in.error_file(), 0, kMaxTextBytes);
  if (in.has_left_peer()) {
    report.left_peer = check.Range("failure.left_peer", in.left_peer(), 0, kMaxRank);
  }
  if (!in.has_error()) return report;
  check.Size("failure.error.message", in.error().message().size(), kMaxErrorMessageBytes);
  check.Size("failure.error.traceback", in.error().traceback().size(), kMaxTracebackBytes);
  report.error = WorkerError{.message = in.error().message(),
                             .traceback = in.error().traceback(),
                             .unix_time_s = check.Range("failure.error.unix_time_s",
                                                        in.error().unix_time_s(), 0, kMaxUnixTime)};
  return report;
}

void AssignmentToProto(const Assignment& in, v1::Assignment& out) {
  out.set_node_rank(in.node_rank);
  out.set_node_count(in.node_count);
  out.set_first_rank(in.first_rank);
  out.set_world_size(in.world_size);
  out.set_role_first_rank(in.role_first_rank);
  out.set_role_world_size(in.role_world_size);
  out.set_master_addr(in.master_addr);
  out.set_master_port(in.master_port);
  out.set_restart_count(in.restart_count);
  out.set_max_restarts(in.max_restarts);
  out.set_coordinator_is_member(in.coordinator_is_member);
  out.set_note(CleanText(in.note));
}

Assignment AssignmentFromProto(const v1::Assignment& in, CheckedFields& check) {
  Assignment out;
  out.node_count = check.Range("assignment.node_count", in.node_count(), 1, kMaxRank);
  out.node_rank = check.Range("assignment.node_rank", in.node_rank(), 0, out.node_count - 1);
  out.world_size = check.Range("assignment.world_size", in.world_size(), 1, kMaxRank);
  out.first_rank = check.Range("assignment.first_rank", in.first_rank(), 0, out.world_size - 1);
  out.role_world_size =
      check.Range("assignment.role_world_size", in.role_world_size(), 1, out.world_size);
  out.role_first_rank =
      check.Range("assignment.role_first_rank", in.role_first_rank(), 0, out.role_world_size - 1);
  out.master_addr = check.Text("assignment.master_addr", in.master_addr(), 1, 256);
  out.master_port =
      static_cast<uint16_t>(check.Range("assignment.master_port", in.master_port(), 1, 65535));
  out.restart_count = check.Range("assignment.restart_count", in.restart_count(), 0, kMaxRank);
  out.max_restarts =
      check.Range("assignment.max_restarts", in.max_restarts(), 0, std::numeric_limits<int>::max());
  out.coordinator_is_member = in.coordinator_is_member();
  out.note = check.Text("assignment.note", in.note(), 0, kMaxTextBytes);
  return out;
}

template <typename Message>
void StampToProto(const Stamp& stamp, Message& out) {
  out.set_epoch(stamp.epoch.value);
  out.set_round(stamp.round.value);
  out.set_instance_high(stamp.instance.high);
  out.set_instance_low(stamp.instance.low);
}

uint64_t MillisecondsOf(Duration duration) {
  return static_cast<uint64_t>(std::max<int64_t>(0, duration_cast<milliseconds>(duration).count()));
}

void PolicyToProto(const Policy& policy, v1::JobPolicy& out) {
  out.set_min_nodes(policy.min_nodes);
  out.set_max_nodes(policy.max_nodes);
  out.set_max_restarts(policy.max_restarts);
  out.set_last_call_ms(MillisecondsOf(policy.last_call));
  out.set_join_timeout_ms(MillisecondsOf(policy.join_timeout));
  out.set_evict_after_ms(MillisecondsOf(policy.evict_after));
  out.set_orphan_timeout_ms(MillisecondsOf(policy.orphan_timeout));
  out.set_is_static(policy.is_static);
  out.set_static_master_addr(CleanText(policy.static_master_addr));
  out.set_static_master_port(policy.static_master_port);
}

Policy PolicyFromProto(const v1::JobPolicy& in, CheckedFields& check) {
  // A hundred days, so that no sum of times overflows.
  constexpr int64_t kMaxWaitMs = 8'640'000'000;
  const auto wait = [&check](const char* field, uint64_t value, int64_t least) {
    return milliseconds(check.Range(field, value, least, kMaxWaitMs));
  };
  Policy policy;
  policy.max_nodes = check.Range("policy.max_nodes", in.max_nodes(), 1, kMaxRank);
  policy.min_nodes = check.Range("policy.min_nodes", in.min_nodes(), 1, policy.max_nodes);
  policy.max_restarts =
      check.Range("policy.max_restarts", in.max_restarts(), 0, std::numeric_limits<int>::max());
  policy.last_call = wait("policy.last_call_ms", in.last_call_ms(), 0);
  policy.join_timeout = wait("policy.join_timeout_ms", in.join_timeout_ms(), 1);
  policy.evict_after = wait("policy.evict_after_ms", in.evict_after_ms(), 1);
  policy.orphan_timeout = wait("policy.orphan_timeout_ms", in.orphan_timeout_ms(), 1);
  policy.is_static = in.is_static();
  policy.static_master_addr =
      check.Text("policy.static_master_addr", in.static_master_addr(), 0, 256);
  policy.static_master_port = static_cast<uint16_t>(
      check.Range("policy.static_master_port", in.static_master_port(), 0, 65535));
  return policy;
}

void JoinToProto(const NodeJoined& joined, v1::Join& out) {
  const NodeInfo& node = joined.node;
  out.set_run_id(CleanText(joined.policy.run_id));
  out.set_node_id(CleanText(node.id.value));
  out.set_host(CleanText(node.host));
  out.set_advertised_addr(CleanText(node.advertised_addr));
  out.set_local_world_size(node.local_world_size);
  out.set_role(CleanText(node.role));
  out.set_node_rank(node.node_rank);
  out.set_store_port(node.store_port);
  PolicyToProto(joined.policy, *out.mutable_policy());
  if (joined.held) AssignmentToProto(*joined.held, *out.mutable_held());
}

Event JoinFromProto(const v1::Join& in, const Stamp& stamp, CheckedFields& check) {
  NodeJoined joined;
  joined.stamp = stamp;
  NodeInfo& node = joined.node;
  node.id.value = check.Text("join.node_id", in.node_id(), 1, 256);
  node.host = check.Text("join.host", in.host(), 0, 256);
  node.advertised_addr = check.Text("join.advertised_addr", in.advertised_addr(), 0, 256);
  node.local_world_size = check.Range("join.local_world_size", in.local_world_size(), 1, 65536);
  node.role = check.Text("join.role", in.role(), 0, 256);
  node.node_rank = check.Range("join.node_rank", in.node_rank(), -1, kMaxRank);
  node.store_port =
      static_cast<uint16_t>(check.Range("join.store_port", in.store_port(), 0, 65535));
  joined.policy = PolicyFromProto(in.policy(), check);
  joined.policy.run_id = check.Text("join.run_id", in.run_id(), 1, 256);
  if (in.has_held()) {
    joined.held = AssignmentFromProto(in.held(), check);
    joined.held->instance = stamp.instance;
    joined.held->epoch = stamp.epoch;
    joined.held->round = stamp.round;
  }
  return joined;
}

// A day: beyond it a report is of no use, and no sum of ages may overflow.
constexpr int64_t kMaxAgeUs = 86'400'000'000;

Event FailedFromProto(const v1::WorkersFailed& in, const Stamp& stamp, CheckedFields& check) {
  WorkersFailed failed;
  failed.stamp = stamp;
  failed.report = FailureFromProto(in.failure(), check);
  const int64_t age = check.Range("workers_failed.age_us", in.age_us(), 0, kMaxAgeUs);
  const int64_t trip =
      check.Range("workers_failed.round_trip_us", in.round_trip_us(), 0, kMaxAgeUs);
  failed.age = microseconds(age + trip / 2);
  return failed;
}

Event FirstSuccessFromProto(const v1::FirstWorkerSucceeded& in, const Stamp& stamp,
                            CheckedFields& check) {
  return FirstWorkerSucceeded{
      .stamp = stamp,
      .rank = static_cast<int>(check.Range("first_worker_succeeded.rank", in.rank(), 0, kMaxRank)),
      .age = microseconds(check.Range("first_worker_succeeded.age_us", in.age_us(), 0, kMaxAgeUs))};
}

v1::Refused::Kind KindToProto(Refusal kind) {
  switch (kind) {
    case Refusal::kFinal:
      return v1::Refused::KIND_FINAL;
    case Refusal::kJobOver:
      return v1::Refused::KIND_JOB_OVER;
    case Refusal::kOtherJob:
      return v1::Refused::KIND_OTHER_JOB;
  }
  return v1::Refused::KIND_UNSPECIFIED;
}

Refusal KindFromProto(v1::Refused::Kind kind) {
  switch (kind) {
    case v1::Refused::KIND_JOB_OVER:
      return Refusal::kJobOver;
    case v1::Refused::KIND_OTHER_JOB:
      return Refusal::kOtherJob;
    default:
      return Refusal::kFinal;  // also of a newer coordinator: its message says what it is
  }
}

Verdict VerdictFromProto(const v1::Verdict& in, CheckedFields& check) {
  Verdict verdict;
  verdict.exit_code = check.Range("verdict.exit_code", in.exit_code(), 0, 255);
  verdict.reason = check.Text("verdict.reason", in.reason(), 0, kMaxTextBytes);
  if (in.has_first_failure()) verdict.first_failure = FailureFromProto(in.first_failure(), check);
  return verdict;
}

// Fills the kind of an agent's message.
struct EventToProto {
  v1::AgentMessage& out;
  Duration round_trip;

  void operator()(const NodeJoined& joined) { JoinToProto(joined, *out.mutable_join()); }
  void operator()(const HeartbeatReceived&) { out.mutable_heartbeat(); }
  void operator()(const NodeLeft& left) { out.mutable_leave()->set_reason(CleanText(left.reason)); }
  void operator()(const WorkersFailed& failed) {
    v1::WorkersFailed& message = *out.mutable_workers_failed();
    FailureToProto(failed.report, *message.mutable_failure());
    message.set_age_us(MicrosecondsOf(failed.age));
    message.set_round_trip_us(MicrosecondsOf(round_trip));
  }
  void operator()(const FirstWorkerSucceeded& first) {
    v1::FirstWorkerSucceeded& message = *out.mutable_first_worker_succeeded();
    message.set_rank(first.rank);
    message.set_age_us(MicrosecondsOf(first.age));
  }
  void operator()(const WorkersSucceeded&) { out.mutable_workers_succeeded(); }
  void operator()(const VerdictAcked&) { out.mutable_verdict_ack(); }
  void operator()(const SessionBroken&) { DDP_CHECK(false); }
  void operator()(const Recorded&) { DDP_CHECK(false); }
  void operator()(const TimePassed&) { DDP_CHECK(false); }
};

// Fills the stamp and the kind of a coordinator's message.
struct ActionToProto {
  v1::CoordinatorMessage& out;
  TimePoint now;

  void operator()(const TellWaiting& told) {
    out.mutable_waiting()->set_reason(CleanText(told.reason));
    if (!told.deadline) return;
    const auto left = duration_cast<milliseconds>(*told.deadline - now).count();
    out.mutable_waiting()->set_left_ms(std::max<int64_t>(0, left));
  }
  void operator()(const Assign& assign) {
    SetStamp(assign.assignment.epoch, assign.assignment.round);
    AssignmentToProto(assign.assignment, *out.mutable_assignment());
  }
  void operator()(const Drain& drain) {
    SetStamp(drain.epoch, drain.round);
    out.mutable_drain()->set_reason(CleanText(drain.reason));
  }
  void operator()(const Conclude& conclude) {
    SetStamp(conclude.epoch, conclude.round);
    v1::Verdict& verdict = *out.mutable_verdict();
    verdict.set_exit_code(conclude.verdict.exit_code);
    verdict.set_reason(CleanText(conclude.verdict.reason));
    if (conclude.verdict.first_failure) {
      FailureToProto(*conclude.verdict.first_failure, *verdict.mutable_first_failure());
    }
  }
  void operator()(const Refuse& refuse) {
    out.mutable_refused()->set_kind(KindToProto(refuse.kind));
    out.mutable_refused()->set_message(CleanText(refuse.message));
  }
  void operator()(const CloseSession&) { DDP_CHECK(false); }
  void operator()(const Finish&) { DDP_CHECK(false); }
  void operator()(const Record&) { DDP_CHECK(false); }
  void SetStamp(Epoch epoch, Round round) {
    out.set_epoch(epoch.value);
    out.set_round(round.value);
  }
};

absl::Status CheckSize(const char* kind, size_t size, size_t limit) {
  if (size <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(kind, " of ", size, " bytes, at most ", limit, " are accepted"));
}

}  // namespace

absl::StatusOr<v1::AgentMessage> ToProto(const Event& event, Duration round_trip) {
  v1::AgentMessage out;
  std::visit(
      [&out](const auto& any) {
        if constexpr (requires { any.stamp; }) {
          StampToProto(any.stamp, out);
        }
      },
      event);
  std::visit(EventToProto{out, round_trip}, event);
  const size_t limit = out.has_join() ? kMaxJoinBytes : kMaxMessageBytes;
  absl::Status fits = CheckSize(out.has_join() ? "join" : "message", out.ByteSizeLong(), limit);
  if (!fits.ok()) return fits;
  return out;
}

v1::AgentMessage HeartbeatToProto(const Stamp& stamp, uint64_t sequence) {
  v1::AgentMessage out;
  StampToProto(stamp, out);
  out.mutable_heartbeat()->set_sequence(sequence);
  return out;
}

absl::StatusOr<Event> FromProto(const v1::AgentMessage& message) {
  const Stamp stamp{{},
                    Epoch{message.epoch()},
                    Round{message.round()},
                    {message.instance_high(), message.instance_low()}};
  CheckedFields check;
  absl::Status fits = CheckSize("message", message.ByteSizeLong(), kMaxMessageBytes);
  if (message.has_join()) fits = CheckSize("join", message.ByteSizeLong(), kMaxJoinBytes);
  if (message.has_heartbeat()) {
    fits = CheckSize("heartbeat", message.ByteSizeLong(), kMaxHeartbeatBytes);
  }
  if (!fits.ok()) return fits;
  Event event;
  switch (message.kind_case()) {
    case v1::AgentMessage::kJoin:
      event = JoinFromProto(message.join(), stamp, check);
      break;
    case v1::AgentMessage::kHeartbeat:
      event = HeartbeatReceived{stamp};
      break;
    case v1::AgentMessage::kLeave:
      event =
          NodeLeft{stamp, check.Text("leave.reason", message.leave().reason(), 0, kMaxTextBytes)};
      break;
    case v1::AgentMessage::kWorkersFailed:
      event = FailedFromProto(message.workers_failed(), stamp, check);
      break;
    case v1::AgentMessage::kFirstWorkerSucceeded:
      event = FirstSuccessFromProto(message.first_worker_succeeded(), stamp, check);
      break;
    case v1::AgentMessage::kWorkersSucceeded:
      event = WorkersSucceeded{stamp};
      break;
    case v1::AgentMessage::kVerdictAck:
      event = VerdictAcked{stamp};
      break;
    case v1::AgentMessage::KIND_NOT_SET:
      check.Fail("kind", "not set or unknown");
      break;
  }
  if (!check.status().ok()) return check.status();
  return event;
}

JobInstance InstanceOf(const v1::CoordinatorMessage& message) {
  return {message.instance_high(), message.instance_low()};
}

v1::CoordinatorMessage ToProto(const Action& action, const Stamp& current, TimePoint now) {
  v1::CoordinatorMessage out;
  StampToProto(current, out);
  std::visit(ActionToProto{out, now}, action);
  return out;
}

absl::StatusOr<Action> FromProto(const v1::CoordinatorMessage& message, TimePoint now) {
  const Epoch epoch{message.epoch()};
  const Round round{message.round()};
  CheckedFields check;
  Action action;
  switch (message.kind_case()) {
    case v1::CoordinatorMessage::kWaiting: {
      const v1::Waiting& in = message.waiting();
      TellWaiting told{{}, check.Text("waiting.reason", in.reason(), 0, kMaxTextBytes), {}};
      // A hundred days, so that the sum does not overflow.
      const int64_t left = check.Range("waiting.left_ms", in.left_ms(), 0, 8'640'000'000);
      if (in.has_left_ms()) told.deadline = now + milliseconds(left);
      action = std::move(told);
      break;
    }
    case v1::CoordinatorMessage::kAssignment: {
      Assignment assignment = AssignmentFromProto(message.assignment(), check);
      assignment.instance = InstanceOf(message);
      assignment.epoch = epoch;
      assignment.round = round;
      action = Assign{{}, std::move(assignment)};
      break;
    }
    case v1::CoordinatorMessage::kDrain:
      action = Drain{
          {}, epoch, round, check.Text("drain.reason", message.drain().reason(), 0, kMaxTextBytes)};
      break;
    case v1::CoordinatorMessage::kVerdict:
      action = Conclude{{}, epoch, round, VerdictFromProto(message.verdict(), check)};
      break;
    case v1::CoordinatorMessage::kRefused:
      action = Refuse{{},
                      KindFromProto(message.refused().kind()),
                      check.Text("refused.message", message.refused().message(), 0, kMaxTextBytes)};
      break;
    case v1::CoordinatorMessage::kHeartbeatReply:
    case v1::CoordinatorMessage::KIND_NOT_SET:
      check.Fail("kind", "not set or unknown");
      break;
  }
  if (!check.status().ok()) return check.status();
  return action;
}

}  // namespace ddprun::rendezvous
