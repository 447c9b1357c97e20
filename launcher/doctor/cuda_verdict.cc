#include "launcher/doctor/cuda_verdict.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/text.h"
#include "rendezvous/base/check.h"

namespace ddprun::launcher {
namespace {

std::string InMachine(const DriverFacts& driver) {
  if (driver.gpus_in_machine == 0) return "";
  return absl::StrCat(" (the machine has ", driver.gpus_in_machine, ")");
}

// A driver that was opened but shows no GPU.
std::string WhyNoneIsVisible(const GpuReport& report, const DriverFacts& driver) {
  const std::string& error = report.gpu_error;
  if (absl::StrContains(error, "SYSTEM_DRIVER_MISMATCH")) {
    return absl::StrCat(error, "; the driver's library does not fit its kernel module",
                        driver.kernel_module.empty() ? "" : " ", driver.kernel_module,
                        ": reboot after an update; in a container, use the host's library");
  }
  if (absl::StrContains(error, "SYSTEM_NOT_READY")) {
    return absl::StrCat(error, "; start nvidia-fabricmanager: GPUs behind NVSwitch need it");
  }
  const bool is_none = error.empty() || absl::StrContains(error, "NO_DEVICE") ||
                       absl::StrContains(error, "INVALID_DEVICE");
  if (is_none && driver.visible_devices) {
    return absl::StrCat("no GPU is visible: CUDA_VISIBLE_DEVICES is ",
                        Quoted(*driver.visible_devices), InMachine(driver),
                        "; unset it, or name GPUs by their index or UUID");
  }
  const std::string what = is_none ? absl::StrCat("no GPU is visible", InMachine(driver),
                                                  error.empty() ? "" : ": ", error)
                                   : error;
  if (driver.kernel_module.empty()) {
    return absl::StrCat(what,
                        "; the NVIDIA kernel module is not loaded: modprobe nvidia; in a "
                        "container, start it with --gpus all");
  }
  return absl::StrCat(what, "; see what nvidia-smi says; in a container, start it with --gpus all");
}

// NVIDIA's first driver for all of a major version of CUDA.
const char* OldestDriver(int cuda_major) {
  if (cuda_major == 11) return " (450 or newer)";
  if (cuda_major == 12) return " (525 or newer)";
  return cuda_major == 13 ? " (580 or newer)" : "";
}

// As the user wrote it: "gpu", or "gpu:1,3".
std::string NameOfGpus(const LaunchConfig& config) {
  if (config.gpus.empty()) return "gpu";
  return absl::StrCat("gpu:", absl::StrJoin(config.gpus, ","));
}

}  // namespace

std::optional<std::string> WhyNoGpu(const GpuReport& report, const DriverFacts& driver) {
  switch (report.driver) {
    case DriverState::kMissing:
      if (driver.kernel_module.empty()) return report.driver_error;
      return absl::StrCat(report.driver_error, "; the kernel module ", driver.kernel_module,
                          " is loaded: only the library is missing here");
    case DriverState::kUnusable:
      return report.driver_error;
    case DriverState::kUnknown:
    case DriverState::kOpened:
      break;
  }
  if (!report.interrupted.empty()) {
    return absl::StrCat(report.interrupted,
                        "; see what nvidia-smi says and dmesg has from NVRM; a reboot helps often");
  }
  if (report.gpus.empty() || !report.gpu_error.empty()) return WhyNoneIsVisible(report, driver);
  return std::nullopt;
}

std::optional<std::string> WhyNoNccl(const GpuReport& report) {
  if (!report.nccl_file.empty()) return std::nullopt;
  if (!report.nccl_error.empty()) return report.nccl_error;
  return report.interrupted.empty() ? "NCCL: it was not looked for" : report.interrupted;
}

std::optional<std::string> WhyDriverTooOldForNccl(const GpuReport& report) {
  const int needed = report.nccl_cuda_version / 1000, served = report.cuda_version / 1000;
  if (report.driver != DriverState::kOpened || served == 0 || served >= needed) return std::nullopt;
  return absl::StrCat("NCCL ", report.nccl_version, " (", report.nccl_file, ") is built for CUDA ",
                      CudaVersionText(report.nccl_cuda_version), ", and the driver serves CUDA ",
                      CudaVersionText(report.cuda_version), " at most: update the driver",
                      OldestDriver(needed), ", or install an NCCL built for CUDA ", served);
}

std::optional<std::string> WhyNoCuda(const DoctorFacts& facts) {
  if (std::optional<std::string> why = WhyNoGpu(facts.gpu, facts.host.driver)) return why;
  if (std::optional<std::string> why = WhyNoNccl(facts.gpu)) return why;
  return WhyDriverTooOldForNccl(facts.gpu);
}

std::string CudaVersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

absl::Status ResolveWorkers(const GpuReport& report, const DriverFacts& driver, int cpu_count,
                            LaunchConfig& config) {
  DDP_CHECK(config.workers_by != WorkersBy::kNumber);
  const std::optional<std::string> why = WhyNoGpu(report, driver);
  const bool is_auto = config.workers_by == WorkersBy::kGpuOrCpu;
  if (why && !is_auto) {
    return absl::FailedPreconditionError(
        absl::StrCat(config.SourceOf("nproc_per_node"), " '", NameOfGpus(config), "': ", *why,
                     "; or give a number, or cpu (", cpu_count, " here)"));
  }
  const int gpus = static_cast<int>(report.gpus.size());
  for (const int gpu : config.gpus) {
    if (gpu < gpus) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        config.SourceOf("nproc_per_node"), " '", NameOfGpus(config), "': there is no GPU ", gpu,
        ": ", gpus, gpus == 1 ? " is" : " are", " visible, and they count from 0"));
  }
  const int chosen = static_cast<int>(config.gpus.size());
  const int count = why ? std::max(cpu_count, 1) : chosen > 0 ? chosen : gpus;
  config.workers_per_node = std::min(count, kMaxWorkersPerNode);
  config.workers_by = WorkersBy::kNumber;
  if (why && report.driver != DriverState::kMissing) {
    config.warnings.push_back(absl::StrCat(config.SourceOf("nproc_per_node"),
                                           " 'auto': one worker for each of ",
                                           config.workers_per_node, " CPUs, since ", *why));
  }
  return absl::OkStatus();
}

}  // namespace ddprun::launcher
