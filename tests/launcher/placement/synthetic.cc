#include "tests/launcher/placement/synthetic.h"

#include "rendezvous/base/check.h"

namespace ddprun::testing {
namespace {

using launcher::CpuSet;

CpuSet CpusOf(hwloc_const_bitmap_t bitmap) {
  CpuSet cpus;
  for (int cpu = hwloc_bitmap_first(bitmap); cpu >= 0; cpu = hwloc_bitmap_next(bitmap, cpu)) {
    cpus.insert(cpu);
  }
  return cpus;
}

}  // namespace

Synthetic::Synthetic(const std::string& description) {
  DDP_CHECK(hwloc_topology_init(&topology_) == 0);
  DDP_CHECK(hwloc_topology_set_synthetic(topology_, description.c_str()) == 0);
  DDP_CHECK(hwloc_topology_load(topology_) == 0);
}

Synthetic::~Synthetic() { hwloc_topology_destroy(topology_); }

FakeMachine Synthetic::Machine() const {
  FakeMachine machine;
  for (int node = 0; node < NodeCount(); ++node) machine.nodes[node] = CpusOfNode(node);
  for (hwloc_obj_t unit = nullptr;
       (unit = hwloc_get_next_obj_by_type(topology_, HWLOC_OBJ_PU, unit)) != nullptr;) {
    FakeCpu& cpu = machine.cpus[static_cast<int>(unit->os_index)];
    for (hwloc_obj_t above = unit->parent; above != nullptr; above = above->parent) {
      if (above->type == HWLOC_OBJ_CORE) cpu.core = CpusOf(above->cpuset);
      if (above->type == HWLOC_OBJ_PACKAGE) cpu.package = static_cast<int>(above->os_index);
      if (hwloc_obj_type_is_dcache(above->type) != 0) {
        cpu.caches.push_back(
            {.level = static_cast<int>(above->attr->cache.depth), .shared = CpusOf(above->cpuset)});
      }
    }
    // Every kernel tells of this one, and it must not count: it holds no data.
    cpu.caches.push_back({.level = 9, .type = "Instruction", .shared = machine.nodes.at(0)});
  }
  return machine;
}

int Synthetic::NodeCount() const { return hwloc_get_nbobjs_by_type(topology_, HWLOC_OBJ_NUMANODE); }

hwloc_obj_t Synthetic::NodeObject(int node) const {
  hwloc_obj_t found = hwloc_get_numanode_obj_by_os_index(topology_, static_cast<unsigned>(node));
  DDP_CHECK(found != nullptr);
  return found;
}

CpuSet Synthetic::CpusOfNode(int node) const { return CpusOf(NodeObject(node)->cpuset); }

CpuSet Synthetic::CpusOfSocket(int node) const {
  const hwloc_obj_t socket =
      hwloc_get_ancestor_obj_by_type(topology_, HWLOC_OBJ_PACKAGE, NodeObject(node));
  DDP_CHECK(socket != nullptr);
  return CpusOf(socket->cpuset);
}

std::vector<CpuSet> Synthetic::ObjectsIn(int node, hwloc_obj_type_t type) const {
  const hwloc_const_cpuset_t within = NodeObject(node)->cpuset;
  const int count = hwloc_get_nbobjs_inside_cpuset_by_type(topology_, within, type);
  std::vector<CpuSet> objects;
  for (int index = 0; index < count; ++index) {
    objects.push_back(CpusOf(
        hwloc_get_obj_inside_cpuset_by_type(topology_, within, type, static_cast<unsigned>(index))
            ->cpuset));
  }
  return objects;
}

std::vector<CpuSet> Synthetic::CoresOf(int node) const { return ObjectsIn(node, HWLOC_OBJ_CORE); }

std::vector<CpuSet> Synthetic::LargestCachesOf(int node) const {
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
    if (std::vector<CpuSet> caches = ObjectsIn(node, type); !caches.empty()) return caches;
  }
  return {};
}

const std::vector<std::string>& SyntheticDescriptions() {
  static const std::vector<std::string> descriptions = {
      "pack:2 numa:2 l3:2 core:4 pu:2",
      "pack:2 numa:1 l3:1 l2:8 core:1 pu:2(indexes=2*16:1*2)",  // threads 16 apart: x86's usual way
      "pack:1 numa:1 l3:6 core:2 pu:1",
      "pack:2 numa:4 l2:2 core:3 pu:2(indexes=48*1)",
  };
  return descriptions;
}

}  // namespace ddprun::testing
