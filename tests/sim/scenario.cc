#include "tests/sim/scenario.h"

#include "absl/strings/str_cat.h"

namespace ddprun::sim {
namespace {

std::string Seconds(Duration duration) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  return absl::StrCat(ms / 1000, ".", absl::Dec(ms % 1000, absl::kZeroPad3), " s");
}

}  // namespace

const char* FaultName(FaultKind kind) {
  switch (kind) {
    case FaultKind::kBreakStream:
      return "break the stream of";
    case FaultKind::kHalfBreak:
      return "break at the agent the stream of";
    case FaultKind::kCutNode:
      return "cut off";
    case FaultKind::kCutUp:
      return "make mute";
    case FaultKind::kCutDown:
      return "make deaf";
    case FaultKind::kCutCoordinator:
      return "cut off the coordinator";
    case FaultKind::kPauseAgent:
      return "stop the agent of";
    case FaultKind::kKillAgent:
      return "kill the agent of";
    case FaultKind::kSignalAgent:
      return "terminate the agent of";
    case FaultKind::kOrderStop:
      return "the user stops the job on";
    case FaultKind::kPauseCoordinator:
      return "stop the coordinator";
    case FaultKind::kLagCoordinator:
      return "slow the coordinator";
    case FaultKind::kKillCoordinator:
      return "kill the coordinator";
    case FaultKind::kLoseFile:
      return "kill the coordinator and lose its file";
    case FaultKind::kWorkerFails:
      return "a worker fails on";
    case FaultKind::kWorkerKilled:
      return "a worker is killed on";
    case FaultKind::kSilentEtcd:
      return "silence etcd";
    case FaultKind::kSlowEtcd:
      return "slow etcd down";
    case FaultKind::kCutFromEtcd:
      return "cut off from etcd";
    case FaultKind::kRefuse:
      return "connections are refused between the next node and";
  }
  return "";
}

std::string Describe(const Fault& fault) {
  std::string text =
      absl::StrCat(Seconds(fault.at.time_since_epoch()), "  ", FaultName(fault.kind));
  switch (fault.kind) {
    case FaultKind::kCutCoordinator:
    case FaultKind::kPauseCoordinator:
    case FaultKind::kSlowEtcd:
      return absl::StrCat(text, " for ", Seconds(fault.duration));
    case FaultKind::kLagCoordinator:
      return absl::StrCat(text, " to ", fault.detail, " ms a message for ",
                          Seconds(fault.duration));
    case FaultKind::kSilentEtcd:
      return absl::StrCat(text, " for ", Seconds(fault.duration),
                          fault.detail == 1 ? ", its leases then begin anew" : "");
    case FaultKind::kKillCoordinator:
    case FaultKind::kLoseFile:
      return absl::StrCat(text, ", start it again after ", Seconds(fault.duration));
    case FaultKind::kBreakStream:
    case FaultKind::kHalfBreak:
      return absl::StrCat(text, " n", fault.node);
    case FaultKind::kCutNode:
    case FaultKind::kCutUp:
    case FaultKind::kCutDown:
    case FaultKind::kPauseAgent:
    case FaultKind::kCutFromEtcd:
    case FaultKind::kRefuse:
      return absl::StrCat(text, " n", fault.node, " for ", Seconds(fault.duration),
                          fault.detail == 1 ? ", and from etcd" : "");
    case FaultKind::kKillAgent:
      return absl::StrCat(
          text, " n", fault.node,
          fault.duration == Duration{0} ? "" : ", start it again after " + Seconds(fault.duration));
    case FaultKind::kSignalAgent:
      return absl::StrCat(
          text, " n", fault.node,
          fault.duration == Duration{0} ? "" : ", again after " + Seconds(fault.duration));
    case FaultKind::kOrderStop:
      return absl::StrCat(text, " n", fault.node, fault.detail != 0 ? ", after the step" : "");
    case FaultKind::kWorkerFails:
    case FaultKind::kWorkerKilled:
      return absl::StrCat(text, " n", fault.node, ", local rank ", fault.detail / 256,
                          fault.kind == FaultKind::kWorkerFails ? ", code " : ", signal ",
                          fault.detail % 256);
  }
  return text;
}

std::string HostOf(const Scenario& scenario, int node) {
  return absl::StrCat("n", scenario.is_one_host ? 0 : node);
}

std::string Describe(const Scenario& scenario) {
  const rendezvous::Policy& policy = scenario.policy;
  std::string text = absl::StrCat(
      "nodes ", policy.min_nodes, ":", policy.max_nodes, policy.is_static ? " static" : "",
      ", restarts ", policy.max_restarts, ", coordinator ",
      scenario.is_elected ? "elected"
      : scenario.is_apart ? "apart"
                          : "in n0",
      scenario.names_take > Duration{0}
          ? absl::StrCat(", names take ", Seconds(scenario.names_take))
          : "",
      scenario.is_one_host ? ", one machine" : "", scenario.has_next_job ? ", a next job" : "",
      scenario.keeps_file ? " with a file" : " without a file", ", scale up ",
      ScaleUpName(policy.scale_up), scenario.polls_stop ? ", polled" : "", "\nlast call ",
      Seconds(policy.last_call), ", join timeout ", Seconds(policy.join_timeout), ", evict after ",
      Seconds(policy.evict_after), ", orphan timeout ", Seconds(policy.orphan_timeout), ", grace ",
      Seconds(scenario.agent.shutdown_timeout), "\nmessages take up to ",
      Seconds(scenario.max_delay), ", spikes ", Seconds(scenario.spike), "; work ",
      Seconds(scenario.work), ", ends ", Seconds(scenario.skew), " apart\n");
  for (size_t i = 0; i < scenario.nodes.size(); ++i) {
    const NodePlan& plan = scenario.nodes[i];
    absl::StrAppend(
        &text, "n", i, " starts at ", Seconds(plan.start.time_since_epoch()), " with ",
        plan.local_world_size, " workers", plan.is_stubborn ? " that ignore SIGTERM" : "",
        plan.evict_after > Duration{0} ? ", of its own evict time " + Seconds(plan.evict_after)
                                       : "",
        "\n");
  }
  absl::StrAppend(&text, "all is well from ", Seconds(scenario.heal_at.time_since_epoch()),
                  ", over by ", Seconds(scenario.end_by.time_since_epoch()), "\n");
  return text;
}

}  // namespace ddprun::sim
