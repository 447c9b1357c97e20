// Which CPUs each worker is bound to (--numa_binding). [pure]
//
// A worker's place follows from that of its device: the GPU of its local rank or, where there is
// none, a share of the machine.
#ifndef DDPRUN_LAUNCHER_PLACEMENT_BINDING_H_
#define DDPRUN_LAUNCHER_PLACEMENT_BINDING_H_

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/cli/launch_config.h"
#include "launcher/placement/cpu_set.h"

namespace ddprun::launcher {

struct NumaNode {
  CpuSet cpus;      // those that this process may use; empty for a node of memory alone
  int package = 0;  // the socket; for NumaBinding::kSocket, where the node has a CPU
};

// What the machine is made of, as far as a binding asks.
struct Topology {
  std::map<int, NumaNode> nodes;  // by the kernel's number
  // Of each CPU, the lowest one of its physical core (for kExclusive), or of those that share its
  // highest cache (for kCoreComplex), allowed or not: it stands for the core or cache.
  std::map<int, int> leader_of;
};

// The CPUs of each worker by local rank; worker i has device i. `device_nodes` is the NUMA node of
// every device of this process, also of those without a worker: they have their share as well.
//   kNode         all CPUs of the device's node
//   kSocket       all CPUs of all nodes of that node's socket
//   kExclusive    a share of the node's cores; devices of one node share none, and the first ones
//                 have one core more where they do not divide
//   kCoreComplex  the CPUs below one cache of the node, the largest first, in turn
// FailedPrecondition, one line, when a worker would have no CPU.
// REQUIRES: 0 < workers <= device_nodes.size(); leader_of has the CPUs of the devices' nodes.
absl::StatusOr<std::vector<CpuSet>> BindWorkers(NumaBinding binding, const Topology& topology,
                                                const std::vector<int>& device_nodes, int workers);

// The places of workers that have no GPU: in the order of their local ranks, in equal blocks, over
// the nodes that have a CPU. None when no node has one.
std::vector<int> SpreadOverNodes(const Topology& topology, int workers);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLACEMENT_BINDING_H_
