#include "launcher/agent/agent_policy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "rendezvous/core/text.h"

namespace ddprun::launcher {
namespace {

// As inet_aton(3) reads it, whom getaddrinfo asks first: 127.1, 0x7f.1 and 2130706433 are
// 127.0.0.1. Empty: it is none.
std::optional<uint32_t> Ipv4Of(const std::string& host) {
  const std::vector<std::string> parts = absl::StrSplit(host, '.');
  if (parts.size() > 4) return std::nullopt;
  uint64_t address = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty() || !absl::ascii_isdigit(parts[i][0])) return std::nullopt;
    char* end = nullptr;
    const uint64_t part = std::strtoull(parts[i].c_str(), &end, 0);  // octal behind a 0, hex
    // The last part is all that is left of the address.
    const size_t bits = i + 1 < parts.size() ? 8 : 8 * (4 - i);
    if (*end != '\0' || part >> bits != 0) return std::nullopt;
    address = address << bits | part;
  }
  return static_cast<uint32_t>(address);
}

// "::ffff:127.0.0.1" is an IPv4 address to whoever connects.
std::string WithoutMapping(const std::string& host) {
  constexpr absl::string_view kPrefix = "::ffff:";
  const bool is_mapped = absl::StartsWithIgnoreCase(host, kPrefix);
  return is_mapped ? host.substr(kPrefix.size()) : host;
}

// As one listens there; empty: other hosts may mean another place by it.
std::string LoopbackText(const std::string& host) {
  if (absl::EqualsIgnoreCase(host, "localhost")) return "localhost";
  const bool is_ipv6 = host.find(':') != std::string::npos;
  // Zeros alone before the last figure, in any of their spellings.
  if (is_ipv6 && host.find_first_not_of("0:") == host.size() - 1 && host.back() == '1') {
    return "::1";
  }
  const std::optional<uint32_t> address = Ipv4Of(WithoutMapping(host));
  if (!address || *address >> 24 != 127) return "";
  return absl::StrCat(*address >> 24, ".", *address >> 16 & 255, ".", *address >> 8 & 255, ".",
                      *address & 255);
}

// Which names where the nodes meet.
const char* EndpointOption(const LaunchConfig& config) {
  return config.rendezvous == RendezvousKind::kStatic ? "--master-addr" : "--rdzv-endpoint";
}

}  // namespace

AgentPolicy AgentPolicyOf(const LaunchConfig& config) {
  return {
      .job = rendezvous::JobText(config.run_id),
      .local_world_size = config.workers_per_node,
      .min_nodes = config.nodes.min,
      .max_nodes = config.nodes.max,
      .shutdown_timeout = config.shutdown_timeout,
      .orphan_timeout = config.rendezvous_options.orphan_timeout,
      .evict_after = RendezvousPolicyOf(config).evict_after,
      .exit_barrier_timeout = config.rendezvous_options.exit_barrier_timeout,
      .preempt_signal = config.preempt_signal,
      .requeue_code = config.requeue_code,
      .gets_restarts_back = config.max_restarts > 0 && config.limits.budget_period > Duration{0},
      .is_check = config.is_check,
      .health_pause = config.health_check.empty() ? std::nullopt
                                                  : std::optional(config.bad_nodes.check_timeout),
      .is_health_measured = config.health_check == kOwnHealthCheck,
      .more_stop_signals = config.more_stop_signals};
}

rendezvous::EtcdOptions EtcdOptionsOf(const LaunchConfig& config) {
  rendezvous::EtcdOptions options = config.rendezvous_options.etcd;
  for (const Endpoint& member : config.etcd_members) {
    options.members.push_back({member.host, member.port});
  }
  return options;
}

std::string LoopbackOf(const LaunchConfig& config) {
  // With c10d other nodes may name this host where it was told nothing. With static all workers are
  // told what rank 0 was, and so have to be here as well.
  const bool is_static = config.rendezvous == RendezvousKind::kStatic;
  const bool is_named = config.rendezvous == RendezvousKind::kC10d && !config.is_endpoint_assumed;
  return is_static || is_named ? LoopbackText(config.endpoint.host) : "";
}

bool IsOnThisHost(const LaunchConfig& config) {
  if (config.rendezvous != RendezvousKind::kEtcd) {
    return config.rendezvous == RendezvousKind::kStandalone || !LoopbackOf(config).empty();
  }
  // A node leads at the address of its way to etcd. Of several nodes each may reach etcd by a proxy
  // of its own host.
  const auto is_loopback = [](const std::string& host) { return !LoopbackText(host).empty(); };
  return config.nodes.max == 1 && config.local_addr.empty() &&
         std::ranges::all_of(config.etcd_members, is_loopback, &Endpoint::host);
}

std::string TrustText(bool has_identity) {
  return has_identity
             ? "agents, the workers' store and ddp's tcp backend are encrypted. So is what ddp's "
               "nccl backend sends over TCP if NCCL is built with TLS, but not over InfiniBand or "
               "RoCE. What workers open themselves, as Gloo and PyTorch's NCCL do, is not"
             : "the network is trusted: whoever reaches this job's ports can join, read "
               "and end it; with a token (ddprun token new) only its own nodes can";
}

std::string TrustLine(const LaunchConfig& config, bool has_identity) {
  const bool is_here = IsOnThisHost(config) || (has_identity && config.nodes.max == 1);
  return is_here ? "" : TrustText(has_identity);
}

rendezvous::Policy RendezvousPolicyOf(const LaunchConfig& config) {
  rendezvous::Policy policy;
  policy.run_id = config.run_id;
  policy.min_nodes = config.nodes.min;
  policy.max_nodes = config.nodes.max;
  policy.max_restarts = config.max_restarts;
  policy.limits = config.limits;
  policy.bad_nodes = config.bad_nodes;
  policy.scale_up = config.scale_up;
  policy.last_call = config.rendezvous_options.last_call;
  policy.join_timeout = config.rendezvous_options.join_timeout;
  policy.orphan_timeout = config.rendezvous_options.orphan_timeout;
  policy.evict_after = config.rendezvous_options.evict_after.value_or(policy.evict_after);
  if (config.is_endpoint_assumed) {
    policy.meeting_place =
        absl::StrCat(config.endpoint.host, ":", config.endpoint.port,
                     " (of this host alone, as no ", EndpointOption(config), " was given)");
  } else if (config.nodes.max > 1 && !LoopbackOf(config).empty()) {
    policy.meeting_place = absl::StrCat(config.endpoint.host, ":", config.endpoint.port,
                                        " (this machine alone; if nodes are on "
                                        "others, give ",
                                        EndpointOption(config), " a host name that all can reach)");
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
