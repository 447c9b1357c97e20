#include "rendezvous/wire/convert.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/release.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;

uint64_t MicrosecondsOf(Duration duration) {
  return static_cast<uint64_t>(std::max<int64_t>(0, duration_cast<microseconds>(duration).count()));
}

template <typename Message>
void StampToProto(const Stamp& stamp, Message& out) {
  out.set_epoch(stamp.epoch.value);
  out.set_round(stamp.round.value);
  out.set_instance_high(stamp.instance.high);
  out.set_instance_low(stamp.instance.low);
}

template <typename Message>
Stamp StampFromProto(const Message& in) {
  return {{}, Epoch{in.epoch()}, Round{in.round()}, {in.instance_high(), in.instance_low()}};
}

v1::Health::State StateToProto(Health health) {
  switch (health) {
    case Health::kUnchecked:
      return v1::Health::STATE_UNSPECIFIED;
    case Health::kHealthy:
      return v1::Health::STATE_HEALTHY;
    case Health::kBad:
      return v1::Health::STATE_BAD;
    case Health::kUnknown:
      return v1::Health::STATE_UNKNOWN;
  }
  return v1::Health::STATE_UNSPECIFIED;
}

void HealthToProto(const HealthReport& report, v1::Health& out) {
  out.set_state(StateToProto(report.health));
  const std::string line = CleanText(report.line);
  out.set_line(line.substr(0, CharacterStart(line, kMaxHealthLineBytes)));
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
  out.set_cluster_job(CleanText(node.cluster.job));
  out.set_cluster_step(CleanText(node.cluster.step));
  out.set_cluster_nodes(node.cluster.nodes);
  out.set_cluster_node(node.cluster.node + 1);
  out.set_protocol(node.release.protocol);
  out.set_version(node.release.version);
  PolicyToProto(joined.policy, *out.mutable_policy());
  out.set_restart_count(joined.restart_count);
  out.set_max_restarts(joined.max_restarts);
  out.set_program(node.program);
  if (node.health.health != Health::kUnchecked) HealthToProto(node.health, *out.mutable_health());
  if (joined.held) AssignmentToProto(*joined.held, *out.mutable_held());
}

Health HealthFromProto(v1::Health::State state) {
  switch (state) {
    case v1::Health::STATE_HEALTHY:
      return Health::kHealthy;
    case v1::Health::STATE_BAD:
      return Health::kBad;
    default:
      return Health::kUnknown;
  }
}

HealthReport HealthFromProto(const v1::Health& in, CheckedFields& check) {
  return {.health = HealthFromProto(in.state()),
          .line = check.Text("health.line", in.line(), 0, kMaxHealthLineBytes)};
}

Release ReleaseFromProto(const v1::Join& in, CheckedFields& check) {
  Release release;
  if (in.protocol() == 0) return release;
  release.protocol = check.Range("join.protocol", in.protocol(), kFirstProtocol, kMaxProtocol);
  release.version = check.Text("join.version", in.version(), 0, kMaxReleaseVersionBytes);
  return release;
}

Event JoinFromProto(const v1::Join& in, const Stamp& stamp, CheckedFields& check) {
  NodeJoined joined;
  joined.stamp = stamp;
  NodeInfo& node = joined.node;
  node.release = ReleaseFromProto(in, check);
  if (!Understand(node.release, ThisRelease())) {
    // What else it says may mean something else. It is refused by name.
    node.id.value = check.Text("join.node_id", in.node_id(), 1, 256);
    node.host = check.Text("join.host", in.host(), 0, 256);
    joined.policy.run_id = check.Text("join.run_id", in.run_id(), 1, 256);
    if (in.has_held()) joined.held.emplace();
    return joined;
  }
  node.id.value = check.Text("join.node_id", in.node_id(), 1, 256);
  node.host = check.Text("join.host", in.host(), 0, 256);
  node.advertised_addr = check.Text("join.advertised_addr", in.advertised_addr(), 0, 256);
  node.local_world_size = check.Range("join.local_world_size", in.local_world_size(), 1, 65536);
  node.role = check.Text("join.role", in.role(), 0, 256);
  node.node_rank = check.Range("join.node_rank", in.node_rank(), -1, kMaxRank);
  node.cluster.job = check.Text("join.cluster_job", in.cluster_job(), 0, 256);
  node.cluster.step = check.Text("join.cluster_step", in.cluster_step(), 0, 256);
  node.cluster.nodes = check.Range("join.cluster_nodes", in.cluster_nodes(), 0, kMaxRank);
  node.cluster.node = check.Range("join.cluster_node", in.cluster_node(), 0, kMaxRank) - 1;
  node.program = in.program();
  if (in.has_health()) node.health = HealthFromProto(in.health(), check);
  joined.policy = PolicyFromProto(in.policy(), check);
  // Any node may become the first, whose store all are told of; `static` names another one.
  node.store_port = check.Port("join.store_port", in.store_port(), joined.policy.is_static ? 0 : 1);
  joined.policy.run_id = check.Text("join.run_id", in.run_id(), 1, 256);
  joined.restart_count = check.Range("join.restart_count", in.restart_count(), 0, kMaxRank);
  joined.max_restarts =
      check.Range("join.max_restarts", in.max_restarts(), 0, std::numeric_limits<int>::max());
  if (in.has_held()) {
    joined.held = AssignmentFromProto(in.held(), stamp, check);
    // An older release tells them in `held` alone.
    joined.restart_count = joined.held->restart_count;
    joined.max_restarts = joined.held->max_restarts;
  }
  return joined;
}

// A day: beyond it a report is of no use, and no sum of ages may overflow.
constexpr int64_t kMaxAgeUs = 86'400'000'000;

Event FailedFromProto(const v1::WorkersFailed& in, const Stamp& stamp, CheckedFields& check) {
  FailureReport report = FailureFromProto(in.failure(), check);
  const int64_t age = check.Range("workers_failed.age_us", in.age_us(), 0, kMaxAgeUs);
  const int64_t trip =
      check.Range("workers_failed.round_trip_us", in.round_trip_us(), 0, kMaxAgeUs);
  return WorkersFailed{
      .stamp = stamp, .report = std::move(report), .age = microseconds(age + trip / 2)};
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
    case Refusal::kBadNode:
      return v1::Refused::KIND_BAD_NODE;
    case Refusal::kRankHeld:
      return v1::Refused::KIND_RANK_HELD;
  }
  return v1::Refused::KIND_UNSPECIFIED;
}

Refusal KindFromProto(v1::Refused::Kind kind) {
  switch (kind) {
    case v1::Refused::KIND_JOB_OVER:
      return Refusal::kJobOver;
    case v1::Refused::KIND_OTHER_JOB:
      return Refusal::kOtherJob;
    case v1::Refused::KIND_BAD_NODE:
      return Refusal::kBadNode;
    case v1::Refused::KIND_RANK_HELD:
      return Refusal::kRankHeld;
    default:
      return Refusal::kFinal;  // also of a newer coordinator: its message says what it is
  }
}

TellToStop TellToStopFromProto(const v1::StopAfterStep& in, const Stamp& stamp,
                               CheckedFields& check) {
  TellToStop told{{}, check.Text("stop_after_step.reason", in.reason(), 0, kMaxTextBytes)};
  if (!in.is_to_scale_up()) return told;
  told.is_to_scale_up = true;
  told.epoch = stamp.epoch;
  told.round = stamp.round;
  return told;
}

// Fills the kind of an agent's message.
struct EventToProto {
  v1::AgentMessage& out;
  Duration round_trip;

  void operator()(const NodeJoined& joined) { JoinToProto(joined, *out.mutable_join()); }
  void operator()(const HeartbeatReceived& e) { out.mutable_heartbeat()->set_is_stuck(e.is_stuck); }
  void operator()(const NodeLeft& left) {
    out.mutable_leave()->set_reason(CleanText(left.reason));
    out.mutable_leave()->set_is_by_signal(left.is_by_signal);
  }
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
  void operator()(const WorkersSucceeded& done) {
    out.mutable_workers_succeeded()->set_stop_read(
        static_cast<v1::WorkersSucceeded::StopRead>(done.stop_read));
  }
  void operator()(const VerdictAcked&) { out.mutable_verdict_ack(); }
  void operator()(const HealthChecked& checked) {
    HealthToProto(checked.report, *out.mutable_health());
  }
  void operator()(const QuestionAsked& asked) {
    QuestionToProto(asked.question, *out.mutable_question());
  }
  void operator()(const AnswerGiven& answer) {
    out.mutable_answer()->set_id(answer.id);
    out.mutable_answer()->set_body(answer.body);
  }
  void operator()(const StopOrdered& order) {
    out.mutable_stop()->set_is_after_step(order.how == StopHow::kAfterStep);
    out.mutable_stop()->set_is_now(order.how == StopHow::kNow);
    out.mutable_stop()->set_reason(CleanText(order.reason));
  }
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
    out.mutable_assignment()->set_round_key(assign.assignment.round_key);
  }
  void operator()(const Drain& drain) {
    SetStamp(drain.epoch, drain.round);
    out.mutable_drain()->set_reason(CleanText(drain.reason));
    out.mutable_drain()->set_is_cause_wanted(drain.is_cause_wanted);
  }
  void operator()(const Conclude& conclude) {
    SetStamp(conclude.epoch, conclude.round);
    VerdictToProto(conclude.verdict, *out.mutable_verdict());
  }
  void operator()(const Refuse& refuse) {
    out.mutable_refused()->set_kind(KindToProto(refuse.kind));
    out.mutable_refused()->set_message(CleanText(refuse.message));
  }
  void operator()(const AskNode& ask) {
    out.mutable_question()->set_id(ask.id);
    out.mutable_question()->set_body(ask.body);
  }
  void operator()(const GiveAnswers& given) { AnswersToProto(given, now, *out.mutable_answers()); }
  void operator()(const TellToStop& told) {
    if (told.is_to_scale_up) SetStamp(told.epoch, told.round);
    out.mutable_stop_after_step()->set_reason(CleanText(told.reason));
    out.mutable_stop_after_step()->set_is_to_scale_up(told.is_to_scale_up);
  }
  void operator()(const CloseSession&) { DDP_CHECK(false); }
  void operator()(const Finish&) { DDP_CHECK(false); }
  void operator()(const Record&) { DDP_CHECK(false); }
  void operator()(const TellSite&) { DDP_CHECK(false); }
  void SetStamp(Epoch epoch, Round round) {
    out.set_epoch(epoch.value);
    out.set_round(round.value);
  }
};

absl::Status CheckSize(const v1::AgentMessage& message) {
  const auto [kind, limit] = message.has_join()        ? std::pair("join", kMaxJoinBytes)
                             : message.has_heartbeat() ? std::pair("heartbeat", kMaxHeartbeatBytes)
                                                       : std::pair("message", kMaxMessageBytes);
  const size_t size = message.ByteSizeLong();
  if (size <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(kind, " of ", size, " bytes, at most ", limit, " are accepted"));
}

}  // namespace

absl::StatusOr<v1::AgentMessage> ToProto(const Event& event, Duration round_trip) {
  v1::AgentMessage out;
  std::visit(
      [&out](const auto& any) {
        if constexpr (requires { any.stamp; }) StampToProto(any.stamp, out);
      },
      event);
  std::visit(EventToProto{out, round_trip}, event);
  if (absl::Status fits = CheckSize(out); !fits.ok()) return fits;
  return out;
}

absl::StatusOr<Event> FromProto(const v1::AgentMessage& message) {
  const Stamp stamp = StampFromProto(message);
  CheckedFields check;
  if (absl::Status fits = CheckSize(message); !fits.ok()) return fits;
  Event event;
  switch (message.kind_case()) {
    case v1::AgentMessage::kJoin:
      event = JoinFromProto(message.join(), stamp, check);
      break;
    case v1::AgentMessage::kHeartbeat:
      event = HeartbeatReceived{stamp, message.heartbeat().is_stuck()};
      break;
    case v1::AgentMessage::kLeave:
      event =
          NodeLeft{stamp, check.Text("leave.reason", message.leave().reason(), 0, kMaxTextBytes),
                   message.leave().is_by_signal()};
      break;
    case v1::AgentMessage::kWorkersFailed:
      event = FailedFromProto(message.workers_failed(), stamp, check);
      break;
    case v1::AgentMessage::kFirstWorkerSucceeded:
      event = FirstSuccessFromProto(message.first_worker_succeeded(), stamp, check);
      break;
    case v1::AgentMessage::kWorkersSucceeded:
      event = WorkersSucceeded{
          stamp, static_cast<StopRead>(
                     check.Range("workers_succeeded.stop_read",
                                 static_cast<int>(message.workers_succeeded().stop_read()), 0, 2))};
      break;
    case v1::AgentMessage::kVerdictAck:
      event = VerdictAcked{stamp};
      break;
    case v1::AgentMessage::kHealth:
      event = HealthChecked{stamp, HealthFromProto(message.health(), check)};
      break;
    case v1::AgentMessage::kQuestion:
      event = QuestionAsked{stamp, QuestionFromProto(message.question(), check)};
      break;
    case v1::AgentMessage::kAnswer:
      check.Size("answer.body", message.answer().body().size(), kMaxAnswerBytes);
      event = AnswerGiven{stamp, message.answer().id(), message.answer().body()};
      break;
    case v1::AgentMessage::kStop:
      event = StopOrdered{stamp,
                          message.stop().is_after_step() ? StopHow::kAfterStep
                          : message.stop().is_now()      ? StopHow::kNow
                                                         : StopHow::kGracefully,
                          check.Text("stop.reason", message.stop().reason(), 1, kMaxTextBytes)};
      break;
    case v1::AgentMessage::KIND_NOT_SET:
      check.Fail("kind", "not set or unknown");
      break;
  }
  if (!check.status().ok()) return check.status();
  return event;
}

JobInstance InstanceOf(const v1::CoordinatorMessage& message) {
  return StampFromProto(message).instance;
}

v1::CoordinatorMessage ToProto(const Action& action, const Stamp& current, TimePoint now) {
  v1::CoordinatorMessage out;
  StampToProto(current, out);
  std::visit(ActionToProto{out, now}, action);
  return out;
}

absl::StatusOr<Action> FromProto(const v1::CoordinatorMessage& message, TimePoint now) {
  const Stamp stamp = StampFromProto(message);
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
      Assign assign{{}, AssignmentFromProto(message.assignment(), stamp, check)};
      const std::string& key = message.assignment().round_key();
      if (!key.empty() && key.size() != kRoundKeyBytes) {
        check.Fail("assignment.round_key",
                   absl::StrCat("size ", key.size(), ", not ", kRoundKeyBytes));
      }
      assign.assignment.round_key = key;
      action = std::move(assign);
      break;
    }
    case v1::CoordinatorMessage::kDrain:
      action = Drain{{},
                     stamp.epoch,
                     stamp.round,
                     check.Text("drain.reason", message.drain().reason(), 0, kMaxTextBytes),
                     message.drain().is_cause_wanted()};
      break;
    case v1::CoordinatorMessage::kVerdict:
      action = Conclude{{}, stamp.epoch, stamp.round, VerdictFromProto(message.verdict(), check)};
      break;
    case v1::CoordinatorMessage::kRefused:
      action = Refuse{{},
                      KindFromProto(message.refused().kind()),
                      check.Text("refused.message", message.refused().message(), 0, kMaxTextBytes)};
      break;
    case v1::CoordinatorMessage::kQuestion:
      check.Size("question.body", message.question().body().size(), kMaxQuestionBytes);
      action = AskNode{{}, message.question().id(), message.question().body()};
      break;
    case v1::CoordinatorMessage::kAnswers:
      action = AnswersFromProto(message.answers(), now, check);
      break;
    case v1::CoordinatorMessage::kStopAfterStep:
      action = TellToStopFromProto(message.stop_after_step(), stamp, check);
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
