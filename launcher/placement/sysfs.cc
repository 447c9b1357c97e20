#include "launcher/placement/sysfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/text.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

using absl::FailedPreconditionError;

// A list of 8192 lone CPUs takes 39 KiB.
constexpr size_t kMaxFile = 64 * 1024;

absl::Status CannotRead(const std::string& path, int error) {
  const absl::Status status = absl::ErrnoToStatus(error, absl::StrCat("read ", path));
  return FailedPreconditionError(status.message());
}

// The file's text without white space around.
absl::StatusOr<std::string> ReadText(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return CannotRead(path, errno);
  std::string text;
  char buffer[4096];
  while (text.size() < kMaxFile) {
    const ssize_t count = read(file.get(), buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return CannotRead(path, errno);
    if (count == 0) return std::string(absl::StripAsciiWhitespace(text));
    text.append(buffer, static_cast<size_t>(count));
  }
  return FailedPreconditionError(absl::StrCat("read ", path, ": it is too long"));
}

absl::StatusOr<int> ReadNumber(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadText(path);
  if (!text.ok()) return text.status();
  int value = 0;
  if (!absl::SimpleAtoi(*text, &value)) {
    return FailedPreconditionError(
        absl::StrCat("read ", path, ": ", Quoted(*text), " is no number"));
  }
  return value;
}

absl::StatusOr<CpuSet> ReadCpuList(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadText(path);
  if (!text.ok()) return text.status();
  absl::StatusOr<CpuSet> cpus = ParseCpuList(*text);
  if (!cpus.ok()) {
    return FailedPreconditionError(absl::StrCat("read ", path, ": ", cpus.status().message()));
  }
  return cpus;
}

// The lowest of a list that must not be empty.
absl::StatusOr<int> ReadLowestCpu(const std::string& path) {
  const absl::StatusOr<CpuSet> cpus = ReadCpuList(path);
  if (!cpus.ok()) return cpus.status();
  if (cpus->empty()) return FailedPreconditionError(absl::StrCat("read ", path, ": it is empty"));
  return *cpus->begin();
}

// The N of each entry `prefix`N of a folder.
absl::StatusOr<CpuSet> NumbersIn(const std::string& folder, std::string_view prefix) {
  DIR* const directory = opendir(folder.c_str());
  if (directory == nullptr) return CannotRead(folder, errno);
  CpuSet numbers;
  while (const dirent* entry = readdir(directory)) {
    const std::string_view name = entry->d_name;
    if (name.substr(0, prefix.size()) != prefix) continue;
    const absl::StatusOr<CpuSet> number = ParseCpuList(name.substr(prefix.size()));
    if (number.ok() && number->size() == 1) numbers.insert(*number->begin());
  }
  closedir(directory);
  return numbers;
}

std::string CpuFolder(const std::string& sys_root, int cpu) {
  return absl::StrCat(sys_root, "/devices/system/cpu/cpu", cpu);
}

// The lowest CPU below the highest cache for data that `cpu` has: usually its L3.
absl::StatusOr<int> ReadCacheLeader(const std::string& sys_root, int cpu) {
  const std::string folder = CpuFolder(sys_root, cpu) + "/cache";
  const absl::StatusOr<CpuSet> indices = NumbersIn(folder, "index");
  if (!indices.ok()) return indices.status();
  int highest = 0;
  std::string highest_cache;
  for (const int index : *indices) {
    const std::string cache = absl::StrCat(folder, "/index", index);
    const absl::StatusOr<std::string> type = ReadText(cache + "/type");
    if (!type.ok()) return type.status();
    if (*type != "Unified" && *type != "Data") continue;
    const absl::StatusOr<int> level = ReadNumber(cache + "/level");
    if (!level.ok()) return level.status();
    if (*level <= highest) continue;
    highest = *level;
    highest_cache = cache;
  }
  if (highest_cache.empty()) {
    return FailedPreconditionError(absl::StrCat("read ", folder, ": it names no cache for data"));
  }
  return ReadLowestCpu(highest_cache + "/shared_cpu_list");
}

absl::Status ReadCpus(const std::string& sys_root, NumaBinding binding, NumaNode& node,
                      Topology& topology) {
  if (binding == NumaBinding::kNode || node.cpus.empty()) return absl::OkStatus();
  if (binding == NumaBinding::kSocket) {
    const absl::StatusOr<int> package =
        ReadNumber(CpuFolder(sys_root, *node.cpus.begin()) + "/topology/physical_package_id");
    if (!package.ok()) return package.status();
    node.package = *package;
    return absl::OkStatus();
  }
  for (const int cpu : node.cpus) {
    const absl::StatusOr<int> leader =
        binding == NumaBinding::kExclusive
            ? ReadLowestCpu(CpuFolder(sys_root, cpu) + "/topology/thread_siblings_list")
            : ReadCacheLeader(sys_root, cpu);
    if (!leader.ok()) return leader.status();
    topology.leader_of[cpu] = *leader;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Topology> ReadTopology(const std::string& sys_root, NumaBinding binding,
                                      const CpuSet& allowed) {
  const std::string folder = sys_root + "/devices/system/node";
  const absl::StatusOr<CpuSet> numbers = NumbersIn(folder, "node");
  if (!numbers.ok()) {
    return FailedPreconditionError(
        absl::StrCat("the kernel tells nothing about NUMA nodes: ", numbers.status().message()));
  }
  Topology topology;
  for (const int number : *numbers) {
    const absl::StatusOr<CpuSet> cpus =
        ReadCpuList(absl::StrCat(folder, "/node", number, "/cpulist"));
    if (!cpus.ok()) return cpus.status();
    NumaNode& node = topology.nodes[number];
    node.cpus = Intersection(*cpus, allowed);
    if (absl::Status status = ReadCpus(sys_root, binding, node, topology); !status.ok()) {
      return status;
    }
  }
  return topology;
}

absl::StatusOr<int> ReadNodeOfDevice(const std::string& sys_root, const std::string& bus_id) {
  // Some libraries write eight digits for the domain; the kernel four, or more where it needs them.
  const std::vector<std::string> parts = absl::StrSplit(bus_id, ':');
  const bool has_three = parts.size() == 3 && !parts[2].empty();
  uint32_t domain = 0;
  if (!has_three || !absl::SimpleHexAtoi(parts[0], &domain) || absl::StrContains(bus_id, '/')) {
    return FailedPreconditionError(absl::StrCat(Quoted(bus_id), " is no PCI address"));
  }
  const std::string address = absl::StrFormat("%04x:%s:%s", domain, absl::AsciiStrToLower(parts[1]),
                                              absl::AsciiStrToLower(parts[2]));
  const absl::StatusOr<int> node =
      ReadNumber(absl::StrCat(sys_root, "/bus/pci/devices/", address, "/numa_node"));
  if (!node.ok()) return node.status();
  return *node < 0 ? 0 : *node;
}

}  // namespace ddprun::launcher
