// The values inside messages: failures, verdicts, assignments, policies.
#include <algorithm>
#include <chrono>
#include <limits>

#include "rendezvous/wire/convert.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

// The end of the year 9999.
constexpr int64_t kMaxUnixTime = 253402300799;

// A hundred days, so that no sum of times overflows.
constexpr int64_t kMaxWaitMs = 8'640'000'000;

uint64_t MillisecondsOf(Duration duration) {
  return static_cast<uint64_t>(std::max<int64_t>(0, duration_cast<milliseconds>(duration).count()));
}

void BadNodeRulesToProto(const BadNodeRules& rules, v1::BadNodeRules& out) {
  out.set_has_check(rules.has_check);
  out.set_check_timeout_ms(MillisecondsOf(rules.check_timeout));
  out.set_refuses_unknown(rules.refuses_unknown);
  if (rules.max_failures) out.set_max_failures(*rules.max_failures);
  out.set_failure_rounds(rules.failure_rounds);
  out.set_quarantine_ms(MillisecondsOf(rules.quarantine));
  out.set_max_bad_nodes(rules.max_bad_nodes);
}

BadNodeRules BadNodeRulesFromProto(const v1::BadNodeRules& in, CheckedFields& check) {
  constexpr int kMost = std::numeric_limits<int>::max();
  const auto number = [&check](const char* field, uint32_t value, int least) {
    return static_cast<int>(check.Range(field, value, least, kMost));
  };
  const auto wait = [&check](const char* field, uint64_t value) {
    return milliseconds(check.Range(field, value, 0, kMaxWaitMs));
  };
  BadNodeRules rules;
  rules.has_check = in.has_check();
  rules.check_timeout = wait("policy.bad_nodes.check_timeout_ms", in.check_timeout_ms());
  rules.refuses_unknown = in.refuses_unknown();
  if (in.has_max_failures()) {
    rules.max_failures = number("policy.bad_nodes.max_failures", in.max_failures(), 0);
  }
  const int least = rules.max_failures ? 1 : 0;
  rules.failure_rounds = number("policy.bad_nodes.failure_rounds", in.failure_rounds(), least);
  rules.quarantine = wait("policy.bad_nodes.quarantine_ms", in.quarantine_ms());
  rules.max_bad_nodes = number("policy.bad_nodes.max_bad_nodes", in.max_bad_nodes(), 0);
  return rules;
}

}  // namespace

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
  out.set_has_own_cause(report.has_own_cause);
  out.set_is_hang(report.is_hang);
  if (report.step) out.set_step(*report.step);
  out.set_progress_ms(MillisecondsOf(report.progress));
  if (!report.error) return;
  v1::WorkerError& error = *out.mutable_error();
  error.set_message(report.error->message.substr(0, kMaxErrorMessageBytes));
  error.set_traceback(report.error->traceback.substr(0, kMaxTracebackBytes));
  error.set_unix_time_s(report.error->unix_time_s);
}

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
  report.has_own_cause = in.has_own_cause();
  report.is_hang = in.is_hang();
  if (in.has_step()) {
    report.step = check.Range("failure.step", in.step(), 0, std::numeric_limits<int64_t>::max());
  }
  report.progress =
      milliseconds(check.Range("failure.progress_ms", in.progress_ms(), 0, kMaxWaitMs));
  if (!in.has_error()) return report;
  check.Size("failure.error.message", in.error().message().size(), kMaxErrorMessageBytes);
  check.Size("failure.error.traceback", in.error().traceback().size(), kMaxTracebackBytes);
  report.error = WorkerError{.message = in.error().message(),
                             .traceback = in.error().traceback(),
                             .unix_time_s = check.Range("failure.error.unix_time_s",
                                                        in.error().unix_time_s(), 0, kMaxUnixTime)};
  return report;
}

void VerdictToProto(const Verdict& verdict, v1::Verdict& out) {
  out.set_exit_code(verdict.exit_code);
  out.set_reason(CleanText(verdict.reason));
  out.set_early_exit(CleanText(verdict.early_exit));
  out.set_limit(CleanText(verdict.limit));
  out.set_is_kill(verdict.is_kill);
  if (verdict.first_failure) {
    FailureToProto(*verdict.first_failure, *out.mutable_first_failure());
  }
}

Verdict VerdictFromProto(const v1::Verdict& in, CheckedFields& check) {
  Verdict verdict;
  verdict.exit_code = check.Range("verdict.exit_code", in.exit_code(), 0, 255);
  verdict.reason = check.Text("verdict.reason", in.reason(), 0, kMaxTextBytes);
  verdict.limit = check.Text("verdict.limit", in.limit(), 0, kMaxTextBytes);
  verdict.early_exit = check.Text("verdict.early_exit", in.early_exit(), 0, kMaxTextBytes);
  verdict.is_kill = in.is_kill();
  if (in.has_first_failure()) verdict.first_failure = FailureFromProto(in.first_failure(), check);
  return verdict;
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
  out.set_coordinator_node(CleanText(in.coordinator_node));
  out.set_note(CleanText(in.note));
  out.set_restart_reason(CleanText(in.restart_reason));
}

Assignment AssignmentFromProto(const v1::Assignment& in, const Stamp& stamp, CheckedFields& check) {
  Assignment out;
  out.instance = stamp.instance;
  out.epoch = stamp.epoch;
  out.round = stamp.round;
  out.node_count = check.Range("assignment.node_count", in.node_count(), 1, kMaxRank);
  out.node_rank = check.Range("assignment.node_rank", in.node_rank(), 0, out.node_count - 1);
  out.world_size = check.Range("assignment.world_size", in.world_size(), 1, kMaxRank);
  out.first_rank = check.Range("assignment.first_rank", in.first_rank(), 0, out.world_size - 1);
  out.role_world_size =
      check.Range("assignment.role_world_size", in.role_world_size(), 1, out.world_size);
  out.role_first_rank =
      check.Range("assignment.role_first_rank", in.role_first_rank(), 0, out.role_world_size - 1);
  out.master_addr = check.Text("assignment.master_addr", in.master_addr(), 1, 256);
  out.master_port = check.Port("assignment.master_port", in.master_port(), 1);
  out.restart_count = check.Range("assignment.restart_count", in.restart_count(), 0, kMaxRank);
  out.max_restarts =
      check.Range("assignment.max_restarts", in.max_restarts(), 0, std::numeric_limits<int>::max());
  out.coordinator_is_member = in.coordinator_is_member();
  out.coordinator_node = check.Text("assignment.coordinator_node", in.coordinator_node(), 0, 256);
  out.note = check.Text("assignment.note", in.note(), 0, kMaxTextBytes);
  out.restart_reason =
      check.Text("assignment.restart_reason", in.restart_reason(), 0, kMaxTextBytes);
  return out;
}

void PolicyToProto(const Policy& policy, v1::JobPolicy& out) {
  out.set_min_nodes(policy.min_nodes);
  out.set_max_nodes(policy.max_nodes);
  out.set_max_restarts(policy.max_restarts);
  const RestartLimits& limits = policy.limits;
  out.set_max_same_failure(limits.max_same_failure);
  if (limits.max_node_losses) out.set_max_node_losses(*limits.max_node_losses);
  if (limits.max_preemptions) out.set_max_preemptions(*limits.max_preemptions);
  out.set_restart_backoff_ms(MillisecondsOf(limits.backoff));
  out.set_restart_budget_period_ms(MillisecondsOf(limits.budget_period));
  const BadNodeRules& rules = policy.bad_nodes;
  if (rules != BadNodeRules{}) BadNodeRulesToProto(rules, *out.mutable_bad_nodes());
  out.set_scale_up(static_cast<v1::JobPolicy::ScaleUp>(policy.scale_up));
  out.set_last_call_ms(MillisecondsOf(policy.last_call));
  out.set_join_timeout_ms(MillisecondsOf(policy.join_timeout));
  out.set_evict_after_ms(MillisecondsOf(policy.evict_after));
  out.set_orphan_timeout_ms(MillisecondsOf(policy.orphan_timeout));
  out.set_is_static(policy.is_static);
  out.set_static_master_addr(CleanText(policy.static_master_addr));
  out.set_static_master_port(policy.static_master_port);
}

Policy PolicyFromProto(const v1::JobPolicy& in, CheckedFields& check) {
  const auto wait = [&check](const char* field, uint64_t value, int64_t least) {
    return milliseconds(check.Range(field, value, least, kMaxWaitMs));
  };
  Policy policy;
  policy.max_nodes = check.Range("policy.max_nodes", in.max_nodes(), 1, kMaxRank);
  policy.min_nodes = check.Range("policy.min_nodes", in.min_nodes(), 1, policy.max_nodes);
  policy.max_restarts =
      check.Range("policy.max_restarts", in.max_restarts(), 0, std::numeric_limits<int>::max());
  const auto count = [&check](const char* field, uint32_t value) {
    return static_cast<int>(check.Range(field, value, 0, std::numeric_limits<int>::max()));
  };
  RestartLimits& limits = policy.limits;
  limits.max_same_failure = count("policy.max_same_failure", in.max_same_failure());
  if (in.has_max_node_losses()) {
    limits.max_node_losses = count("policy.max_node_losses", in.max_node_losses());
  }
  if (in.has_max_preemptions()) {
    limits.max_preemptions = count("policy.max_preemptions", in.max_preemptions());
  }
  limits.backoff = wait("policy.restart_backoff_ms", in.restart_backoff_ms(), 0);
  limits.budget_period = wait("policy.restart_budget_period_ms", in.restart_budget_period_ms(), 0);
  if (in.has_bad_nodes()) policy.bad_nodes = BadNodeRulesFromProto(in.bad_nodes(), check);
  policy.scale_up =
      static_cast<ScaleUp>(check.Range("policy.scale_up", static_cast<int>(in.scale_up()), 0, 2));
  policy.last_call = wait("policy.last_call_ms", in.last_call_ms(), 0);
  policy.join_timeout = wait("policy.join_timeout_ms", in.join_timeout_ms(), 1);
  policy.evict_after = wait("policy.evict_after_ms", in.evict_after_ms(), 1);
  policy.orphan_timeout = wait("policy.orphan_timeout_ms", in.orphan_timeout_ms(), 1);
  policy.is_static = in.is_static();
  const int least = policy.is_static ? 1 : 0;
  policy.static_master_addr =
      check.Text("policy.static_master_addr", in.static_master_addr(), least, 256);
  policy.static_master_port =
      check.Port("policy.static_master_port", in.static_master_port(), least);
  return policy;
}

}  // namespace ddprun::rendezvous
