#include "tests/launcher/placement/fake_sys.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "rendezvous/base/check.h"

namespace ddprun::testing {

using launcher::FormatCpuList;

void WriteSysFile(const std::string& root, const std::string& path, const std::string& text) {
  const std::filesystem::path file = std::filesystem::path(root) / path;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text << "\n";
  DDP_CHECK(std::filesystem::exists(file));
}

void WriteSys(const FakeMachine& machine, const std::string& root) {
  launcher::CpuSet numbers;
  for (const auto& [node, cpus] : machine.nodes) {
    numbers.insert(node);
    WriteSysFile(root, "devices/system/node/node" + std::to_string(node) + "/cpulist",
                 FormatCpuList(cpus));
  }
  WriteSysFile(root, "devices/system/node/possible", FormatCpuList(numbers));
  WriteSysFile(root, "devices/system/node/has_cpu", "0");  // "node" is not the whole of its name
  for (const auto& [number, cpu] : machine.cpus) {
    const std::string folder = "devices/system/cpu/cpu" + std::to_string(number) + "/";
    WriteSysFile(root, folder + "topology/physical_package_id", std::to_string(cpu.package));
    WriteSysFile(root, folder + "topology/thread_siblings_list", FormatCpuList(cpu.core));
    for (size_t index = 0; index < cpu.caches.size(); ++index) {
      const FakeCache& cache = cpu.caches[index];
      const std::string at = folder + "cache/index" + std::to_string(index) + "/";
      WriteSysFile(root, at + "type", cache.type);
      WriteSysFile(root, at + "level", std::to_string(cache.level));
      WriteSysFile(root, at + "shared_cpu_list", FormatCpuList(cache.shared));
    }
  }
  for (const auto& [address, node] : machine.devices) {
    WriteSysFile(root, "bus/pci/devices/" + address + "/numa_node", std::to_string(node));
  }
}

std::string BusIdOf(int gpu) {
  char text[16];
  std::snprintf(text, sizeof(text), "0000:%02x:00.0", static_cast<unsigned>(0x10 + gpu) & 0xff);
  return text;
}

}  // namespace ddprun::testing
