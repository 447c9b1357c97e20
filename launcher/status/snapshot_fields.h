// The members of a snapshot by their names in JSON: the one list for writing and for reading.
// [pure]
//
// VisitMembers<T>(visit) calls, in the order of the schema, visit(name, member), visit.Hex of a
// 64-bit key, visit.Lines of a text of several lines, visit.List of a list and its longest length.
#ifndef DDPRUN_LAUNCHER_STATUS_SNAPSHOT_FIELDS_H_
#define DDPRUN_LAUNCHER_STATUS_SNAPSHOT_FIELDS_H_

#include <cstddef>
#include <type_traits>

#include "launcher/status/snapshot.h"

namespace ddprun::launcher {

// What one snapshot may hold: beyond any job, and little enough for the memory of who reads it.
inline constexpr size_t kMaxRanksOfJob = 65536;
inline constexpr size_t kMaxRanksOfNode = 4096;
inline constexpr size_t kMaxNodesOfJob = 16384;
inline constexpr size_t kMaxGroupsOfRank = 64;   // a counters page has fewer slots
inline constexpr size_t kMaxBucketsOfRank = 14;  // as a counters page has words
inline constexpr size_t kMaxGpusOfNode = 256;
inline constexpr size_t kMaxOtherItems = 1024;  // problems, rounds, errors of a driver

template <typename T, typename Visit>
void VisitMembers(Visit& visit) {
  if constexpr (std::is_same_v<T, GroupView>) {
    visit.Hex("key", &T::key);
    visit("name", &T::name);
    visit("rank", &T::rank);
    visit("size", &T::size);
    visit("called", &T::called);
    visit("done", &T::done);
    visit("op", &T::op);
    visit("waiting_s", &T::waiting_s);
    visit("quiet_s", &T::quiet_s);
    visit("asked_s", &T::asked_s);
  } else if constexpr (std::is_same_v<T, BucketView>) {
    visit("count", &T::count);
    visit("start_s", &T::start_s);
    visit("end_s", &T::end_s);
  } else if constexpr (std::is_same_v<T, GpuView>) {
    visit("index", &T::index);
    visit("name", &T::name);
    visit("utilisation", &T::utilisation);
    visit("memory_used", &T::memory_used);
    visit("memory_total", &T::memory_total);
    visit("temperature", &T::temperature);
    visit("throttle", &T::throttle);
    visit.List("xids", &T::xids, kMaxOtherItems);
  } else if constexpr (std::is_same_v<T, Problem>) {
    visit("kind", &T::kind);
    visit("text", &T::text);
    visit.List("ranks", &T::ranks, kMaxRanksOfJob);
    visit("node", &T::node);
    visit("since_s", &T::since_s);
  } else if constexpr (std::is_same_v<T, RoundView>) {
    visit("round", &T::round);
    visit("reason", &T::reason);
    visit("detect_s", &T::detect_s);
    visit("stop_s", &T::stop_s);
    visit("rendezvous_s", &T::rendezvous_s);
    visit("exec_s", &T::exec_s);
    visit("first_step_s", &T::first_step_s);
    visit("age_s", &T::age_s);
  } else if constexpr (std::is_same_v<T, FaultView>) {
    visit("rank", &T::rank);
    visit("host", &T::host);
    visit("text", &T::text);
    visit.Lines("last_lines", &T::last_lines);
    visit("round", &T::round);
    visit("age_s", &T::age_s);
  }
}

template <typename T, typename Visit>
requires std::is_same_v<T, RankView>
void VisitMembers(Visit& visit) {
  visit("rank", &T::rank);
  visit("local_rank", &T::local_rank);
  visit("pid", &T::pid);
  visit("state", &T::state);
  visit("end", &T::end);
  visit("wait", &T::wait);
  visit("up_s", &T::up_s);
  visit("cpu", &T::cpu);
  visit("core_wait_share", &T::core_wait_share);
  visit("idle_s", &T::idle_s);
  visit("memory", &T::memory);
  visit("gpu", &T::gpu);
  visit("gpu_memory", &T::gpu_memory);
  visit("phase", &T::phase);
  visit("phase_s", &T::phase_s);
  visit("evaluation_s", &T::evaluation_s);
  visit("checkpoint_s", &T::checkpoint_s);
  visit("step", &T::step);
  visit("step_age_s", &T::step_age_s);
  visit("step_s", &T::step_s);
  visit("longest_step_s", &T::longest_step_s);
  visit("samples_per_s", &T::samples_per_s);
  visit("self_s", &T::self_s);
  visit("exposed_share", &T::exposed_share);
  visit("first_step_s", &T::first_step_s);
  visit("backward_s", &T::backward_s);
  visit.List("buckets", &T::buckets, kMaxBucketsOfRank);
  visit.List("groups", &T::groups, kMaxGroupsOfRank);
  visit("last_line", &T::last_line);
  visit("last_line_age_s", &T::last_line_age_s);
}

template <typename T, typename Visit>
requires std::is_same_v<T, NodeView>
void VisitMembers(Visit& visit) {
  visit("id", &T::id);
  visit("host", &T::host);
  visit("name", &T::name);
  visit("node_rank", &T::node_rank);
  visit("state", &T::state);
  visit("hosts_coordinator", &T::hosts_coordinator);
  visit("age_s", &T::age_s);
  visit("up_s", &T::up_s);
  visit("waiting_for", &T::waiting_for);
  visit("waiting_left_s", &T::waiting_left_s);
  visit("gone_node", &T::gone_node);
  visit("health", &T::health);
  visit("health_line", &T::health_line);
  visit.List("ranks", &T::ranks, kMaxRanksOfNode);
  visit.List("gpus", &T::gpus, kMaxGpusOfNode);
  visit("memory_used", &T::memory_used);
  visit("memory_limit", &T::memory_limit);
  visit("oom_kills", &T::oom_kills);
  visit.List("problems", &T::problems, kMaxOtherItems);
}

template <typename T, typename Visit>
requires std::is_same_v<T, JobView>
void VisitMembers(Visit& visit) {
  visit("run_id", &T::run_id);
  visit("program", &T::program);
  visit("state", &T::state);
  visit("is_healthy", &T::is_healthy);
  visit("sentence", &T::sentence);
  visit("waiting_line", &T::waiting_line);
  visit.List("problems", &T::problems, kMaxOtherItems);
  visit("round", &T::round);
  visit("min_nodes", &T::min_nodes);
  visit("max_nodes", &T::max_nodes);
  visit("world_size", &T::world_size);
  visit("node_count", &T::node_count);
  visit("restart_count", &T::restart_count);
  visit("max_restarts", &T::max_restarts);
  visit("up_s", &T::up_s);
  visit("waiting_for", &T::waiting_for);
  visit("waiting_left_s", &T::waiting_left_s);
  visit("gone_nodes", &T::gone_nodes);
  visit("bad_nodes", &T::bad_nodes);
  visit("bad_hosts", &T::bad_hosts);
  visit("coordinator_silent_s", &T::coordinator_silent_s);
  visit("step", &T::step);
  visit("samples_per_s", &T::samples_per_s);
  visit("step_s", &T::step_s);
  visit("exposed_share", &T::exposed_share);
  visit("effective_share", &T::effective_share);
  visit("checkpoint_s", &T::checkpoint_s);
  visit("evaluation_s", &T::evaluation_s);
  visit("restart_s", &T::restart_s);
  visit("start_s", &T::start_s);
  visit("stall_s", &T::stall_s);
  visit.List("nodes", &T::nodes, kMaxNodesOfJob);
  visit.List("silent_nodes", &T::silent_nodes, kMaxNodesOfJob);
  visit.List("rounds", &T::rounds, kMaxOtherItems);
  visit("first_fault", &T::first_fault);
}

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_SNAPSHOT_FIELDS_H_
