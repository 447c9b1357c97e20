#include "launcher/placement/placement.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/text.h"
#include "launcher/doctor/cuda_verdict.h"
#include "launcher/placement/sysfs.h"
#include "rendezvous/base/check.h"

namespace ddprun::launcher {
namespace {

using absl::FailedPreconditionError;

bool IsWithoutGpus(const GpuReport& report, const DriverFacts& driver) {
  if (report.driver == DriverState::kMissing) return true;
  if (!driver.visible_devices) return false;
  const std::string given(absl::StripAsciiWhitespace(*driver.visible_devices));
  return given.empty() || given == "-1";
}

absl::StatusOr<std::vector<int>> NodesOfGpus(const std::vector<Gpu>& gpus, int workers,
                                             const std::string& sys_root) {
  const int count = static_cast<int>(gpus.size());
  if (workers > count) {
    return FailedPreconditionError(
        absl::StrCat("local rank ", count, " has no GPU: ", count, " visible, for ", workers,
                     " workers; workers that use no GPU are bound with CUDA_VISIBLE_DEVICES=-1"));
  }
  std::vector<int> nodes;
  for (const Gpu& gpu : gpus) {
    const absl::StatusOr<int> node = ReadNodeOfDevice(sys_root, gpu.bus_id);
    const bool has_worker = static_cast<int>(nodes.size()) < workers;
    if (!node.ok() && !has_worker) break;  // the shares of the others go by those that are known
    if (!node.ok()) {
      return FailedPreconditionError(
          absl::StrCat("local rank ", nodes.size(), "'s GPU: ", node.status().message()));
    }
    nodes.push_back(*node);
  }
  return nodes;
}

absl::StatusOr<std::vector<CpuSet>> Bind(const LaunchConfig& config, const GpuReport& report,
                                         const DriverFacts& driver, const std::string& sys_root,
                                         const CpuSet& allowed) {
  std::vector<int> places;
  const int workers = config.workers_per_node;
  const bool is_without_gpus = IsWithoutGpus(report, driver);
  if (!is_without_gpus) {
    if (const auto why = WhyNoGpu(report, driver)) return FailedPreconditionError(*why);
    absl::StatusOr<std::vector<int>> nodes = NodesOfGpus(report.gpus, workers, sys_root);
    if (!nodes.ok()) return nodes.status();
    places = *std::move(nodes);
  }
  const absl::StatusOr<Topology> topology = ReadTopology(sys_root, *config.numa_binding, allowed);
  if (!topology.ok()) return topology.status();
  if (is_without_gpus) places = SpreadOverNodes(*topology, workers);
  if (places.empty()) {
    return FailedPreconditionError(absl::StrCat(
        "no NUMA node has a CPU that this process may use (", FormatCpuList(allowed), ")"));
  }
  return BindWorkers(*config.numa_binding, *topology, places, workers);
}

std::vector<std::string> EntriesOf(const std::string& visible_devices) {
  std::vector<std::string> entries;
  for (const absl::string_view entry : absl::StrSplit(visible_devices, ',')) {
    entries.emplace_back(absl::StripAsciiWhitespace(entry));
  }
  return entries;
}

}  // namespace

std::string ChosenDevices(const LaunchConfig& config,
                          const std::optional<std::string>& visible_devices) {
  std::vector<std::string> entries;
  if (visible_devices) entries = EntriesOf(*visible_devices);
  return absl::StrJoin(config.gpus, ",", [&](std::string* out, int gpu) {
    const auto at = static_cast<size_t>(gpu);
    out->append(at < entries.size() ? entries[at] : std::to_string(gpu));
  });
}

absl::StatusOr<std::vector<std::string>> VirtualDevices(
    const LaunchConfig& config, const std::string& variable,
    const std::optional<std::string>& visible_devices) {
  const int workers = config.workers_per_node;
  std::vector<std::string> devices;
  if (!visible_devices) {
    for (int worker = 0; worker < workers; ++worker) devices.push_back(std::to_string(worker));
    return devices;
  }
  devices = EntriesOf(*visible_devices);
  const bool has_too_few = devices.size() < static_cast<size_t>(workers);
  // One worker without a GPU may well be meant.
  if (workers > 1 && (devices[0] == "-1" || (devices[0].empty() && has_too_few))) {
    const std::string option = config.SourceOf("virtual_local_rank");
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": ", variable, " ", Quoted(*visible_devices),
                     " hides all GPUs: unset it, or leave ", option, " out"));
  }
  if (has_too_few) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.SourceOf("virtual_local_rank"), ": local rank ", devices.size(),
                     " exceeds the GPUs in ", variable, " ", Quoted(*visible_devices),
                     ": expected one for each of ", workers, " workers"));
  }
  devices.resize(static_cast<size_t>(workers));
  return devices;
}

absl::StatusOr<std::vector<CpuSet>> BindToCpus(const LaunchConfig& config, const GpuReport& report,
                                               const DriverFacts& driver,
                                               const std::string& sys_root, const CpuSet& allowed) {
  DDP_CHECK(config.numa_binding && config.workers_by == WorkersBy::kNumber);
  absl::StatusOr<std::vector<CpuSet>> cpus = Bind(config, report, driver, sys_root, allowed);
  if (cpus.ok()) return cpus;
  return FailedPreconditionError(absl::StrCat(
      "--numa-binding '", NumaBindingName(*config.numa_binding), "': ", cpus.status().message()));
}

}  // namespace ddprun::launcher
