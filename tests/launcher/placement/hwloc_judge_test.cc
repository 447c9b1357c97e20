// --numa-binding on machines that hwloc made up, judged by what hwloc says of them.
#include <algorithm>
#include <map>
#include <memory>

#include <doctest/doctest.h>

#include "tests/launcher/placement/placed.h"
#include "tests/launcher/placement/synthetic.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using namespace ddprun::testing;

// One machine with its GPUs, and the sets that a binding gives on it.
struct Case {
  explicit Case(const std::string& made_of) : description(made_of), synthetic(made_of) {
    gpu_nodes = GpuNodes(synthetic.NodeCount());
    machine = synthetic.Machine();
    for (size_t gpu = 0; gpu < gpu_nodes.size(); ++gpu) {
      machine.devices[BusIdOf(static_cast<int>(gpu))] = gpu_nodes[gpu];
    }
    WriteSys(machine, sys.path().string());
  }

  std::vector<CpuSet> Bind(NumaBinding binding) const {
    const int count = static_cast<int>(gpu_nodes.size());
    const absl::StatusOr<std::vector<CpuSet>> cpus =
        BindToCpus(Bound(binding, count), GpusOfDouble(count), {}, sys.path().string(), allowed);
    REQUIRE_MESSAGE(cpus.ok(), cpus.status().message());
    REQUIRE(cpus->size() == gpu_nodes.size());
    return *cpus;
  }
  std::vector<size_t> GpusOf(int node) const {
    std::vector<size_t> gpus;
    for (size_t gpu = 0; gpu < gpu_nodes.size(); ++gpu) {
      if (gpu_nodes[gpu] == node) gpus.push_back(gpu);
    }
    return gpus;
  }
  std::vector<CpuSet> Allowed(const std::vector<CpuSet>& objects) const {
    std::vector<CpuSet> kept;
    for (const CpuSet& object : objects) {
      if (CpuSet cpus = Intersection(object, allowed); !cpus.empty()) kept.push_back(cpus);
    }
    return kept;
  }

  TempDir sys;
  const std::string description;
  Synthetic synthetic;
  FakeMachine machine;
  std::vector<int> gpu_nodes;
  CpuSet allowed;
};

// Written once: a machine is hundreds of files.
std::vector<std::unique_ptr<Case>>& Machines() {
  static std::vector<std::unique_ptr<Case>> machines;
  if (machines.empty()) {
    for (const std::string& description : SyntheticDescriptions()) {
      machines.push_back(std::make_unique<Case>(description));
    }
  }
  return machines;
}

template <typename Check>
void OnEachMachine(const Check& check) {
  for (const std::unique_ptr<Case>& on : Machines()) {
    for (const int every : {0, 5}) {
      CAPTURE(on->description);
      CAPTURE(every);
      on->allowed = CpusBut(on->machine, every);
      check(*on);
    }
  }
}

TEST_CASE("binding judged by hwloc: node and socket are the objects around the GPU") {
  OnEachMachine([](const Case& on) {
    const std::vector<CpuSet> nodes = on.Bind(NumaBinding::kNode);
    const std::vector<CpuSet> sockets = on.Bind(NumaBinding::kSocket);
    for (size_t gpu = 0; gpu < nodes.size(); ++gpu) {
      const int node = on.gpu_nodes[gpu];
      CHECK(nodes[gpu] == Intersection(on.synthetic.CpusOfNode(node), on.allowed));
      CHECK(sockets[gpu] == Intersection(on.synthetic.CpusOfSocket(node), on.allowed));
    }
  });
}

// How many of `cores` the worker has, each of them whole.
int WholeCores(const std::vector<CpuSet>& cores, const CpuSet& worker) {
  int count = 0;
  for (const CpuSet& core : cores) {
    const CpuSet part = Intersection(core, worker);
    if (part.empty()) continue;
    CHECK(part == core);
    ++count;
  }
  return count;
}

TEST_CASE("binding judged by hwloc: exclusive divides every core of a node among its GPUs") {
  OnEachMachine([](const Case& on) {
    const std::vector<CpuSet> workers = on.Bind(NumaBinding::kExclusive);
    for (int node = 0; node < on.synthetic.NodeCount(); ++node) {
      const std::vector<CpuSet> cores = on.Allowed(on.synthetic.CoresOf(node));
      CpuSet all;
      size_t taken = 0;
      std::vector<int> counts;
      for (const size_t gpu : on.GpusOf(node)) {
        taken += workers[gpu].size();
        all.insert(workers[gpu].begin(), workers[gpu].end());
        counts.push_back(WholeCores(cores, workers[gpu]));
      }
      CHECK(all == Intersection(on.synthetic.CpusOfNode(node), on.allowed));
      CHECK(taken == all.size());  // no CPU twice
      CHECK(std::is_sorted(counts.rbegin(), counts.rend()));
      CHECK(counts.front() - counts.back() <= 1);
    }
  });
}

TEST_CASE("binding judged by hwloc: core-complex gives each GPU one cache of its node, in turn") {
  OnEachMachine([](const Case& on) {
    const std::vector<CpuSet> workers = on.Bind(NumaBinding::kCoreComplex);
    for (int node = 0; node < on.synthetic.NodeCount(); ++node) {
      const std::vector<CpuSet> caches = on.Allowed(on.synthetic.LargestCachesOf(node));
      REQUIRE_FALSE(caches.empty());
      std::map<CpuSet, size_t> uses;
      for (const size_t gpu : on.GpusOf(node)) {
        CHECK(std::count(caches.begin(), caches.end(), workers[gpu]) == 1);
        ++uses[workers[gpu]];
      }
      CHECK(uses.size() == std::min(caches.size(), on.GpusOf(node).size()));
      // None is left out that is larger than one that is used.
      const size_t least = std::min_element(uses.begin(), uses.end(), [](auto& a, auto& b) {
                             return a.first.size() < b.first.size();
                           })->first.size();
      for (const CpuSet& cache : caches) CHECK((uses.contains(cache) || cache.size() <= least));
    }
  });
}

}  // namespace
}  // namespace ddprun::launcher
