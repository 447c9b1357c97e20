// Machines that hwloc makes up from a line of text, and what hwloc says of them.
#ifndef DDPRUN_TESTS_LAUNCHER_PLACEMENT_SYNTHETIC_H_
#define DDPRUN_TESTS_LAUNCHER_PLACEMENT_SYNTHETIC_H_

#include <hwloc.h>

#include <string>
#include <vector>

#include "launcher/placement/cpu_set.h"
#include "tests/launcher/placement/fake_sys.h"

namespace ddprun::testing {

class Synthetic {
 public:
  // As lstopo --input takes it: "pack:2 numa:2 l3:2 core:4 pu:2".
  explicit Synthetic(const std::string& description);
  ~Synthetic();
  Synthetic(const Synthetic&) = delete;
  Synthetic& operator=(const Synthetic&) = delete;

  FakeMachine Machine() const;

  int NodeCount() const;
  launcher::CpuSet CpusOfNode(int node) const;
  // Of the package around the node.
  launcher::CpuSet CpusOfSocket(int node) const;
  // The objects of one kind in the node, as hwloc orders them.
  std::vector<launcher::CpuSet> CoresOf(int node) const;
  std::vector<launcher::CpuSet> LargestCachesOf(int node) const;

 private:
  hwloc_obj_t NodeObject(int node) const;
  std::vector<launcher::CpuSet> ObjectsIn(int node, hwloc_obj_type_t type) const;

  hwloc_topology_t topology_ = nullptr;
};

// What the tests compare on: one and several nodes a socket, threads side by side and apart in the
// kernel's numbering, with and without an L3.
const std::vector<std::string>& SyntheticDescriptions();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_LAUNCHER_PLACEMENT_SYNTHETIC_H_
