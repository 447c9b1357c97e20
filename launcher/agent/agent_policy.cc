#include "launcher/agent/agent_policy.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun::launcher {

AgentPolicy AgentPolicyOf(const LaunchConfig& config) {
  return {
      .local_world_size = config.workers_per_node,
      .min_nodes = config.nodes.min,
      .max_nodes = config.nodes.max,
      .shutdown_timeout = config.shutdown_timeout,
      .orphan_timeout = config.rendezvous_options.orphan_timeout,
      .exit_barrier_timeout = config.rendezvous_options.exit_barrier_timeout,
      .preempt_signal = config.preempt_signal,
      .requeue_code = config.requeue_code,
      .gets_restarts_back = config.max_restarts > 0 && config.limits.budget_period > Duration{0},
      .is_check = config.is_check,
      .more_stop_signals = config.more_stop_signals};
}

bool MeetsOnLoopback(const LaunchConfig& config) {
  // A name may stand for another address elsewhere; with `static` other nodes may know the host by
  // another one than it does itself.
  if (config.rendezvous != RendezvousKind::kC10d || config.is_endpoint_assumed) return false;
  const std::string& host = config.endpoint.host;
  if (host == "localhost" || host == "::1") return true;
  const std::vector<std::string> parts = absl::StrSplit(host, '.');
  const auto is_byte = [](const std::string& part) {
    uint32_t value = 0;
    return absl::SimpleAtoi(part, &value) && value < 256 && part.size() <= 3;
  };
  return parts.size() == 4 && parts[0] == "127" && std::ranges::all_of(parts, is_byte);
}

std::string TrustLine(const LaunchConfig& config, bool has_identity) {
  if (config.rendezvous == RendezvousKind::kStandalone || MeetsOnLoopback(config)) return "";
  if (!has_identity) {
    return "the network is trusted: whoever reaches this job's ports can join, read and end it; "
           "with "
           "a token (ddprun token new) only its own nodes can";
  }
  if (config.nodes.max == 1) return "";
  return "agents and the workers' store are encrypted; what workers open themselves, as Gloo, NCCL "
         "and ddp's tcp backend do, is not";
}

rendezvous::Policy RendezvousPolicyOf(const LaunchConfig& config) {
  rendezvous::Policy policy;
  policy.run_id = config.run_id;
  policy.min_nodes = config.nodes.min;
  policy.max_nodes = config.nodes.max;
  policy.max_restarts = config.max_restarts;
  policy.limits = config.limits;
  policy.last_call = config.rendezvous_options.last_call;
  policy.join_timeout = config.rendezvous_options.join_timeout;
  policy.orphan_timeout = config.rendezvous_options.orphan_timeout;
  policy.evict_after = config.rendezvous_options.evict_after.value_or(policy.evict_after);
  if (config.is_endpoint_assumed) {
    policy.meeting_place = absl::StrCat(config.endpoint.host, ":", config.endpoint.port);
  }
  if (config.rendezvous == RendezvousKind::kStatic) {
    policy.is_static = true;
    policy.static_master_addr = config.endpoint.host;
    policy.static_master_port = config.endpoint.port;
  }
  return policy;
}

rendezvous::NodeInfo NodeInfoOf(const LaunchConfig& config) {
  rendezvous::NodeInfo node;
  node.advertised_addr = config.local_addr;
  node.local_world_size = config.workers_per_node;
  node.cluster = config.cluster;
  node.role = config.role;
  node.node_rank = config.node_rank.value_or(-1);
  return node;
}

WorkerEnvInput WorkerEnvInputOf(const LaunchConfig& config,
                                const rendezvous::Assignment& assignment,
                                const std::string& job_mark) {
  WorkerEnvInput input;
  input.assignment = assignment;
  input.local_world_size = config.workers_per_node;
  input.run_id = config.run_id;
  input.role = config.role;
  input.job_mark = job_mark;
  input.signals_to_handle = config.signals_to_handle;
  return input;
}

}  // namespace ddprun::launcher
