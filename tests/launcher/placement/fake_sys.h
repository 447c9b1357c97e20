// A machine of a test's own making, as /sys tells of it.
#ifndef DDPRUN_TESTS_LAUNCHER_PLACEMENT_FAKE_SYS_H_
#define DDPRUN_TESTS_LAUNCHER_PLACEMENT_FAKE_SYS_H_

#include <map>
#include <string>
#include <vector>

#include "launcher/placement/cpu_set.h"

namespace ddprun::testing {

struct FakeCache {
  int level = 1;
  std::string type = "Unified";
  launcher::CpuSet shared;
};

struct FakeCpu {
  int package = 0;
  launcher::CpuSet core;
  std::vector<FakeCache> caches;
};

struct FakeMachine {
  std::map<int, launcher::CpuSet> nodes;
  std::map<int, FakeCpu> cpus;
  std::map<std::string, int> devices;  // NUMA nodes by PCI address
};

// Writes what the kernel would show of the machine below `root`.
void WriteSys(const FakeMachine& machine, const std::string& root);
// One file of it, its folders made; over an earlier one.
void WriteSysFile(const std::string& root, const std::string& path, const std::string& text);

// "0000:10:00.0" for 0, "0000:11:00.0" for 1: the GPUs of tests/gpu_double.
std::string BusIdOf(int gpu);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_LAUNCHER_PLACEMENT_FAKE_SYS_H_
