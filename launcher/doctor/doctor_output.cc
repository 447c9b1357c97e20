#include "launcher/doctor/doctor_output.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/cli/text.h"
#include "launcher/doctor/cuda_verdict.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kColumn = 12;

std::string Padded(const std::string& text) {
  const size_t width = std::max(kColumn, text.size() + 1);
  return absl::StrCat(text, std::string(width - text.size(), ' '));
}

// A JSON string. Bytes that are not UTF-8 and control characters become escapes of our own.
std::string Json(std::string_view text) {
  std::string out = "\"";
  for (const char c : EscapeControl(text)) {
    if (c == '\t') {
      out += "\\t";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string JsonOrNull(std::string_view text) { return text.empty() ? "null" : Json(text); }
std::string JsonOrNull(const std::optional<uint64_t>& value) {
  return value ? absl::StrCat(*value) : "null";
}
const char* Json(bool value) { return value ? "true" : "false"; }

// "key": value, with the value JSON already.
std::string Member(const char* key, const std::string& json) {
  return absl::StrCat("\"", key, "\": ", json);
}
std::string Object(const std::vector<std::string>& members) {
  return absl::StrCat("{", absl::StrJoin(members, ", "), "}");
}
template <typename T, typename Make>
std::string Array(const std::vector<T>& values, Make make) {
  std::vector<std::string> items;
  for (const T& value : values) items.push_back(make(value));
  return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
}
std::string Strings(const std::vector<std::string>& values) {
  return Array(values, [](const std::string& value) { return Json(value); });
}

std::string DriverJson(const DoctorFacts& facts) {
  const GpuReport& gpu = facts.gpu;
  const DriverFacts& driver = facts.host.driver;
  const bool is_opened = gpu.driver == DriverState::kOpened;
  const std::string version = CudaVersionText(gpu.cuda_version);
  return Object(
      {Member("file", JsonOrNull(gpu.driver_file)),
       Member("cuda_version", is_opened ? Json(version) : "null"),
       Member("kernel_module", JsonOrNull(driver.kernel_module)),
       Member("gpus_in_machine", absl::StrCat(driver.gpus_in_machine)),
       Member("cuda_visible_devices",
              driver.visible_devices ? Json(*driver.visible_devices) : "null"),
       Member("error", JsonOrNull(gpu.driver_error.empty() ? gpu.interrupted : gpu.driver_error))});
}

std::string GpusJson(const GpuReport& report) {
  int index = 0;
  return Array(report.gpus, [&index](const Gpu& gpu) {
    return Object({Member("index", absl::StrCat(index++)), Member("name", Json(gpu.name)),
                   Member("memory_bytes", absl::StrCat(gpu.memory_bytes)),
                   Member("compute_capability", Json(absl::StrCat(gpu.major, ".", gpu.minor))),
                   Member("pci_bus_id", Json(gpu.bus_id)), Member("uuid", Json(gpu.uuid))});
  });
}

std::string LibrariesJson(const GpuReport& report) {
  const std::string cuda =
      report.nccl_cuda_version == 0 ? "" : CudaVersionText(report.nccl_cuda_version);
  const std::string nccl =
      Object({Member("file", JsonOrNull(report.nccl_file)),
              Member("version", JsonOrNull(report.nccl_version)),
              Member("cuda_version", JsonOrNull(cuda)), Member("lacks", Strings(report.nccl_lacks)),
              Member("error", JsonOrNull(report.nccl_error))});
  const std::string cublas = Object({Member("file", JsonOrNull(report.cublas_file)),
                                     Member("version", JsonOrNull(report.cublas_version)),
                                     Member("error", JsonOrNull(report.cublas_error))});
  return absl::StrCat(Member("nccl", nccl), ",\n  ", Member("cublas", cublas));
}

std::string NetworkJson(const HostFacts& host) {
  return Array(host.network, [](const NetworkInterface& interface) {
    return Object(
        {Member("name", Json(interface.name)), Member("up", Json(interface.is_up)),
         Member("loopback", Json(interface.is_loopback)),
         Member("addresses", Strings(interface.addresses)),
         Member("megabits", interface.megabits == 0 ? "null" : absl::StrCat(interface.megabits))});
  });
}

std::string InfinibandJson(const HostFacts& host) {
  return Array(host.infiniband, [](const InfinibandPort& port) {
    return Object({Member("device", Json(port.device)), Member("port", absl::StrCat(port.port)),
                   Member("state", Json(port.state)), Member("rate", Json(port.rate))});
  });
}

std::string LimitsJson(const HostFacts& host) {
  const auto size = [&](uint64_t bytes) {
    return host.has_shm ? absl::StrCat(bytes) : std::string("null");
  };
  return Object({Member("memlock_bytes", JsonOrNull(host.memlock_bytes)),
                 Member("nofile", JsonOrNull(host.open_files)),
                 Member("nofile_hard", JsonOrNull(host.open_files_hard)),
                 Member("shm_bytes", size(host.shm_bytes)),
                 Member("shm_free_bytes", size(host.shm_free_bytes))});
}

std::string AdviceJson(const DoctorFacts& facts) {
  std::vector<std::string> items;
  for (const Finding& finding : FindingsOf(facts)) {
    if (finding.advice.empty()) continue;
    items.push_back(
        Object({Member("subject", Json(finding.subject)), Member("advice", Json(finding.advice))}));
  }
  return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
}

}  // namespace

std::string DoctorText(const DoctorFacts& facts) {
  std::string out;
  for (const Finding& finding : FindingsOf(facts)) {
    absl::StrAppend(&out, Padded(finding.subject), finding.value, "\n");
    if (!finding.advice.empty()) absl::StrAppend(&out, Padded(""), "-> ", finding.advice, "\n");
  }
  const bool is_possible = !WhyNoCuda(facts);
  absl::StrAppend(&out, Padded("verdict"),
                  is_possible ? "CUDA training can run here"
                              : "CUDA training cannot run here; training on the CPU can",
                  "\n");
  return out;
}

std::string DoctorJson(const DoctorFacts& facts) {
  const HostFacts& host = facts.host;
  const std::optional<std::string> why = WhyNoCuda(facts);
  const std::string toolkit = Object({Member("nvcc", JsonOrNull(host.nvcc_file)),
                                      Member("version", JsonOrNull(host.toolkit_version))});
  const std::vector<std::string> members = {
      Member("driver", DriverJson(facts)),
      Member("gpus", GpusJson(facts.gpu)),
      Member("gpu_error", JsonOrNull(facts.gpu.gpu_error)),
      LibrariesJson(facts.gpu),
      Member("toolkit", toolkit),
      Member("network", NetworkJson(host)),
      Member("infiniband", InfinibandJson(host)),
      Member("limits", LimitsJson(host)),
      Member("numa_nodes", host.numa_nodes == 0 ? "null" : absl::StrCat(host.numa_nodes)),
      Member("advice", AdviceJson(facts)),
      Member("cuda_training", Object({Member("possible", Json(!why)),
                                      Member("reason", why ? Json(*why) : "null")}))};
  return absl::StrCat("{\n  ", absl::StrJoin(members, ",\n  "), "\n}\n");
}

}  // namespace ddprun::launcher
