#include "launcher/doctor/doctor.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "launcher/cli/text.h"
#include "launcher/commands/terminal.h"
#include "launcher/doctor/cuda_verdict.h"
#include "launcher/doctor/gpu_probe.h"
#include "launcher/doctor/host_facts.h"
#include "launcher/process/exit_status.h"
#include "rendezvous/base/version.h"

namespace ddprun::launcher {
namespace {

using Json = nlohmann::ordered_json;

Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json NumberOrNull(const std::optional<uint64_t>& value) { return value ? Json(*value) : Json(); }

// With a space behind each comma and colon. Control characters and bytes that are not UTF-8 become
// escapes of our own.
std::string OneLine(const Json& value) {
  if (value.is_string()) return Json(EscapeControl(value.get<std::string>())).dump();
  if (!value.is_structured()) return value.dump();
  std::vector<std::string> items;
  for (const auto& [key, item] : value.items()) {
    items.push_back(absl::StrCat(value.is_object() ? Json(key).dump() + ": " : "", OneLine(item)));
  }
  const std::string all = absl::StrJoin(items, ", ");
  return value.is_object() ? absl::StrCat("{", all, "}") : absl::StrCat("[", all, "]");
}

Json SystemJson(const SystemFacts& system) {
  return {{"host", TextOrNull(system.host)},
          {"kernel", TextOrNull(system.kernel)},
          {"glibc", TextOrNull(system.glibc)},
          {"cpu", TextOrNull(system.cpu)},
          {"cpus", system.cpus == 0 ? Json() : Json(system.cpus)}};
}

Json DriverJson(const GpuReport& gpu, const DriverFacts& driver) {
  const bool is_opened = gpu.driver == DriverState::kOpened;
  return {{"file", TextOrNull(gpu.driver_file)},
          {"cuda_version", is_opened ? Json(CudaVersionText(gpu.cuda_version)) : Json()},
          {"kernel_module", TextOrNull(driver.kernel_module)},
          {"gpus_in_machine", driver.gpus_in_machine},
          {"cuda_visible_devices", driver.visible_devices ? Json(*driver.visible_devices) : Json()},
          {"error", TextOrNull(gpu.driver_error.empty() ? gpu.interrupted : gpu.driver_error)}};
}

Json GpusJson(const GpuReport& report) {
  Json gpus = Json::array();
  for (const Gpu& gpu : report.gpus) {
    gpus.push_back({{"index", gpus.size()},
                    {"name", gpu.name},
                    {"memory_bytes", gpu.memory_bytes},
                    {"compute_capability", absl::StrCat(gpu.major, ".", gpu.minor)},
                    {"pci_bus_id", gpu.bus_id},
                    {"uuid", gpu.uuid}});
  }
  return gpus;
}

Json NcclJson(const GpuReport& report) {
  const int cuda = report.nccl_cuda_version;
  return {{"file", TextOrNull(report.nccl_file)},
          {"version", TextOrNull(report.nccl_version)},
          {"cuda_version", cuda == 0 ? Json() : Json(CudaVersionText(cuda))},
          {"lacks", report.nccl_lacks},
          {"error", TextOrNull(report.nccl_error)}};
}

Json NetworkJson(const HostFacts& host) {
  Json network = Json::array();
  for (const NetworkInterface& interface : host.network) {
    network.push_back({{"name", interface.name},
                       {"up", interface.is_up},
                       {"loopback", interface.is_loopback},
                       {"addresses", interface.addresses},
                       {"megabits", interface.megabits == 0 ? Json() : Json(interface.megabits)}});
  }
  return network;
}

Json InfinibandJson(const HostFacts& host) {
  Json ports = Json::array();
  for (const InfinibandPort& port : host.infiniband) {
    ports.push_back(
        {{"device", port.device}, {"port", port.port}, {"state", port.state}, {"rate", port.rate}});
  }
  return ports;
}

Json LimitsJson(const HostFacts& host) {
  return {{"memlock_bytes", NumberOrNull(host.memlock_bytes)},
          {"nofile", NumberOrNull(host.open_files)},
          {"nofile_hard", NumberOrNull(host.open_files_hard)},
          {"shm_bytes", host.has_shm ? Json(host.shm_bytes) : Json()},
          {"shm_free_bytes", host.has_shm ? Json(host.shm_free_bytes) : Json()}};
}

Json AdviceJson(const DoctorFacts& facts) {
  Json advice = Json::array();
  for (const Finding& finding : FindingsOf(facts)) {
    if (finding.advice.empty()) continue;
    advice.push_back({{"subject", finding.subject}, {"advice", finding.advice}});
  }
  return advice;
}

}  // namespace

std::string DoctorText(const DoctorFacts& facts) {
  std::string out;
  for (const Finding& finding : FindingsOf(facts)) {
    absl::StrAppendFormat(&out, "%-11s %s\n", finding.subject, finding.value);
    if (!finding.advice.empty()) absl::StrAppendFormat(&out, "%12s-> %s\n", "", finding.advice);
  }
  absl::StrAppend(&out, "verdict     ",
                  WhyNoCuda(facts) ? "CUDA training cannot run here; training on the CPU can"
                                   : "CUDA training can run here",
                  "\n");
  return out;
}

std::string DoctorJson(const DoctorFacts& facts) {
  const GpuReport& gpu = facts.gpu;
  const HostFacts& host = facts.host;
  const std::optional<std::string> why = WhyNoCuda(facts);
  const Json all = {
      {"ddprun", kVersion},
      {"system", SystemJson(host.system)},
      {"driver", DriverJson(gpu, host.driver)},
      {"gpus", GpusJson(gpu)},
      {"gpu_error", TextOrNull(gpu.gpu_error)},
      {"nccl", NcclJson(gpu)},
      {"cublas",
       {{"file", TextOrNull(gpu.cublas_file)},
        {"version", TextOrNull(gpu.cublas_version)},
        {"error", TextOrNull(gpu.cublas_error)}}},
      {"toolkit",
       {{"nvcc", TextOrNull(host.nvcc_file)}, {"version", TextOrNull(host.toolkit_version)}}},
      {"network", NetworkJson(host)},
      {"infiniband", InfinibandJson(host)},
      {"limits", LimitsJson(host)},
      {"numa_nodes", host.numa_nodes == 0 ? Json() : Json(host.numa_nodes)},
      {"advice", AdviceJson(facts)},
      {"cuda_training", {{"possible", !why}, {"reason", TextOrNull(why.value_or(""))}}}};
  std::vector<std::string> lines;
  for (const auto& [key, item] : all.items()) {
    lines.push_back(absl::StrCat("  \"", key, "\": ", OneLine(item)));
  }
  return absl::StrCat("{\n", absl::StrJoin(lines, ",\n"), "\n}\n");
}

int RunDoctor(const DoctorOptions& options, const Environment& environment) {
  const DoctorFacts facts{.gpu = ProbeGpus(kProbeAll), .host = ReadHostFacts(environment)};
  const int exit_code = Print(options.is_json ? DoctorJson(facts) : DoctorText(facts));
  if (exit_code != kExitSuccess || !options.requires_cuda) return exit_code;
  const std::optional<std::string> why = WhyNoCuda(facts);
  if (!why) return kExitSuccess;
  return Complain(
      absl::FailedPreconditionError(absl::StrCat("doctor: CUDA training cannot run here: ", *why)),
      kExitMachine);
}

}  // namespace ddprun::launcher
