// BindToCpus on a fake machine, for tests.
#ifndef DDPRUN_TESTS_LAUNCHER_PLACEMENT_PLACED_H_
#define DDPRUN_TESTS_LAUNCHER_PLACEMENT_PLACED_H_

#include <string>
#include <vector>

#include "launcher/placement/placement.h"
#include "tests/launcher/placement/fake_sys.h"

namespace ddprun::testing {

inline launcher::LaunchConfig Bound(launcher::NumaBinding binding, int workers) {
  launcher::LaunchConfig config;
  config.numa_binding = binding;
  config.workers_per_node = workers;
  return config;
}

// The report of a driver that shows `count` GPUs.
inline launcher::GpuReport GpusOfDouble(int count) {
  launcher::GpuReport report;
  report.driver = launcher::DriverState::kOpened;
  report.is_complete = true;
  for (int gpu = 0; gpu < count; ++gpu) {
    report.gpus.emplace_back();
    report.gpus.back().bus_id = BusIdOf(gpu);
  }
  return report;
}

// The GPUs' places, some nodes with two and some with one: 0 0 1 2 2 3 ..., in turn twice.
inline std::vector<int> GpuNodes(int nodes) {
  std::vector<int> places;
  for (int node = 0; node < nodes; ++node) {
    places.push_back(node);
    if (node % 2 == 0) places.push_back(node);
  }
  for (int node = nodes; node-- > 0;) places.push_back(node);
  return places;
}

// All CPUs of the machine, or (`every` = 5) without every fifth.
inline launcher::CpuSet CpusBut(const FakeMachine& machine, int every) {
  launcher::CpuSet cpus;
  for (const auto& [cpu, unused] : machine.cpus) {
    if (every == 0 || cpu % every != 0) cpus.insert(cpu);
  }
  return cpus;
}

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_LAUNCHER_PLACEMENT_PLACED_H_
