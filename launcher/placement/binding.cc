#include "launcher/placement/binding.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"

namespace ddprun::launcher {
namespace {

using absl::FailedPreconditionError;

// The device of one worker among those of its node.
struct Place {
  int node = 0;
  int index = 0;  // 0-based
  int count = 0;
};

Place PlaceOf(const std::vector<int>& device_nodes, int device) {
  const auto own = device_nodes.begin() + device;
  return {.node = *own,
          .index = static_cast<int>(std::count(device_nodes.begin(), own, *own)),
          .count = static_cast<int>(std::count(device_nodes.begin(), device_nodes.end(), *own))};
}

CpuSet SocketOf(const Topology& topology, const NumaNode& own) {
  CpuSet cpus;
  for (const auto& [number, node] : topology.nodes) {
    if (node.package == own.package) cpus.insert(node.cpus.begin(), node.cpus.end());
  }
  return cpus;
}

// The node's CPUs by core or cache, lowest leader first.
std::vector<CpuSet> GroupsOf(const Topology& topology, const CpuSet& cpus) {
  std::map<int, CpuSet> groups;
  for (const int cpu : cpus) {
    const auto leader = topology.leader_of.find(cpu);
    DDP_CHECK(leader != topology.leader_of.end());
    groups[leader->second].insert(cpu);
  }
  std::vector<CpuSet> ordered;
  for (auto& [leader, group] : groups) ordered.push_back(std::move(group));
  return ordered;
}

absl::StatusOr<CpuSet> ShareOf(const std::vector<CpuSet>& cores, const Place& place) {
  const int count = static_cast<int>(cores.size());
  if (count < place.count) {
    return FailedPreconditionError(absl::StrCat("NUMA node ", place.node, " has ", count,
                                                " physical cores for ", place.count,
                                                " workers; --numa-binding=node lets them share"));
  }
  const int each = count / place.count;
  const int extra = count % place.count;
  const int begin = place.index * each + std::min(place.index, extra);
  const int end = begin + each + (place.index < extra ? 1 : 0);
  CpuSet cpus;
  for (int core = begin; core < end; ++core) {
    const CpuSet& threads = cores[static_cast<size_t>(core)];
    cpus.insert(threads.begin(), threads.end());
  }
  return cpus;
}

CpuSet ComplexOf(std::vector<CpuSet> complexes, const Place& place) {
  std::stable_sort(complexes.begin(), complexes.end(),
                   [](const CpuSet& a, const CpuSet& b) { return a.size() > b.size(); });
  return complexes[static_cast<size_t>(place.index) % complexes.size()];
}

absl::StatusOr<CpuSet> Bind(NumaBinding binding, const Topology& topology, const Place& place) {
  const auto found = topology.nodes.find(place.node);
  if (found == topology.nodes.end()) {
    return FailedPreconditionError(
        absl::StrCat("the kernel has no NUMA node ", place.node, " in /sys/devices/system/node"));
  }
  const NumaNode& node = found->second;
  if (node.cpus.empty()) {
    return FailedPreconditionError(
        absl::StrCat("NUMA node ", place.node, " has no CPU that this process may use"));
  }
  switch (binding) {
    case NumaBinding::kNode:
      return node.cpus;
    case NumaBinding::kSocket:
      return SocketOf(topology, node);
    case NumaBinding::kExclusive:
      return ShareOf(GroupsOf(topology, node.cpus), place);
    case NumaBinding::kCoreComplex:
      return ComplexOf(GroupsOf(topology, node.cpus), place);
  }
  return absl::InternalError("unknown binding");
}

}  // namespace

absl::StatusOr<std::vector<CpuSet>> BindWorkers(NumaBinding binding, const Topology& topology,
                                                const std::vector<int>& device_nodes, int workers) {
  DDP_CHECK(workers > 0 && static_cast<size_t>(workers) <= device_nodes.size());
  std::vector<CpuSet> bound;
  for (int worker = 0; worker < workers; ++worker) {
    absl::StatusOr<CpuSet> cpus = Bind(binding, topology, PlaceOf(device_nodes, worker));
    if (!cpus.ok()) {
      return FailedPreconditionError(
          absl::StrCat("local rank ", worker, ": ", cpus.status().message()));
    }
    bound.push_back(*std::move(cpus));
  }
  return bound;
}

std::vector<int> SpreadOverNodes(const Topology& topology, int workers) {
  std::vector<int> usable;
  for (const auto& [number, node] : topology.nodes) {
    if (!node.cpus.empty()) usable.push_back(number);
  }
  std::vector<int> places;
  if (usable.empty()) return places;
  for (size_t worker = 0; worker < static_cast<size_t>(workers); ++worker) {
    places.push_back(usable[worker * usable.size() / static_cast<size_t>(workers)]);
  }
  return places;
}

}  // namespace ddprun::launcher
