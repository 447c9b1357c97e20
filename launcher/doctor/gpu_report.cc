#include "launcher/doctor/gpu_report.h"

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

using namespace probe_key;

constexpr size_t kMaxGpus = 4096;  // far more than a machine holds: a bound on what is believed

// The name comes last: it alone may hold anything.
std::optional<Gpu> DecodeGpu(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('|', 5));
  Gpu gpu;
  if (parts.size() != 6 || !absl::SimpleAtoi(parts[0], &gpu.memory_bytes) ||
      !absl::SimpleAtoi(parts[1], &gpu.major) || !absl::SimpleAtoi(parts[2], &gpu.minor)) {
    return std::nullopt;
  }
  gpu.bus_id = parts[3];
  gpu.uuid = parts[4];
  gpu.name = parts[5];
  return gpu;
}

void TakeDriver(std::string_view key, std::string value, GpuReport& report) {
  if (key == kDriverFile) {
    report.driver = DriverState::kOpened;
    report.driver_file = std::move(value);
  } else if (key == kDriverMissing) {
    report.driver = DriverState::kMissing;
    report.driver_error = std::move(value);
  } else if (key == kDriverUnusable) {
    report.driver = DriverState::kUnusable;
    report.driver_error = std::move(value);
  } else if (key == kCudaVersion) {
    if (!absl::SimpleAtoi(value, &report.cuda_version)) report.cuda_version = 0;
  } else if (key == kGpu) {
    std::optional<Gpu> gpu = DecodeGpu(value);
    if (gpu && report.gpus.size() < kMaxGpus) report.gpus.push_back(*std::move(gpu));
  } else if (key == kGpuError) {
    report.gpu_error = std::move(value);
  }
}

void TakeLibrary(std::string_view key, std::string value, GpuReport& report) {
  if (key == kNcclFile) {
    report.nccl_file = std::move(value);
  } else if (key == kNcclVersion) {
    report.nccl_version = std::move(value);
  } else if (key == kNcclCudaVersion) {
    if (!absl::SimpleAtoi(value, &report.nccl_cuda_version)) report.nccl_cuda_version = 0;
  } else if (key == kNcclLacks) {
    report.nccl_lacks.push_back(std::move(value));
  } else if (key == kNcclError) {
    report.nccl_error = std::move(value);
  } else if (key == kCublasFile) {
    report.cublas_file = std::move(value);
  } else if (key == kCublasVersion) {
    report.cublas_version = std::move(value);
  } else if (key == kCublasError) {
    report.cublas_error = std::move(value);
  }
}

}  // namespace

std::string ProbeLine(std::string_view key, std::string_view value) {
  return std::string(key) + "=" + EscapeControl(value) + "\n";
}

std::string EncodeGpu(const Gpu& gpu) {
  return absl::StrCat(gpu.memory_bytes, "|", gpu.major, "|", gpu.minor, "|", gpu.bus_id, "|",
                      gpu.uuid, "|", gpu.name);
}

GpuReport ParseProbeLines(std::string_view text) {
  GpuReport report;
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    if (newline == std::string_view::npos) break;  // cut off by the probe's death
    const std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline + 1);
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view key = line.substr(0, equals);
    const std::string value = EscapeControl(line.substr(equals + 1));
    if (key == kStage) report.stage = value;
    if (key == kEnd) report.is_complete = true;
    TakeDriver(key, value, report);
    TakeLibrary(key, value, report);
  }
  return report;
}

}  // namespace ddprun::launcher
