#include "launcher/doctor/gpu_report.h"

#include <optional>
#include <utility>

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

// The facts that are taken as they come.
constexpr std::pair<std::string_view, std::string GpuReport::*> kTexts[] = {
    {kStage, &GpuReport::stage},
    {kDriverFile, &GpuReport::driver_file},
    {kDriverMissing, &GpuReport::driver_error},
    {kDriverUnusable, &GpuReport::driver_error},
    {kGpuError, &GpuReport::gpu_error},
    {kNcclFile, &GpuReport::nccl_file},
    {kNcclVersion, &GpuReport::nccl_version},
    {kNcclError, &GpuReport::nccl_error},
    {kCublasFile, &GpuReport::cublas_file},
    {kCublasVersion, &GpuReport::cublas_version},
    {kCublasError, &GpuReport::cublas_error},
};

void Take(std::string_view key, const std::string& value, GpuReport& report) {
  for (const auto& [name, member] : kTexts) {
    if (key == name) report.*member = value;
  }
  if (key == kDriverFile) report.driver = DriverState::kOpened;
  if (key == kDriverMissing) report.driver = DriverState::kMissing;
  if (key == kDriverUnusable) report.driver = DriverState::kUnusable;
  if (key == kCudaVersion && !absl::SimpleAtoi(value, &report.cuda_version)) {
    report.cuda_version = 0;
  }
  if (key == kNcclCudaVersion && !absl::SimpleAtoi(value, &report.nccl_cuda_version)) {
    report.nccl_cuda_version = 0;
  }
  if (key == kGpu && report.gpus.size() < kMaxGpus) {
    if (const std::optional<Gpu> gpu = DecodeGpu(value)) report.gpus.push_back(*gpu);
  }
  if (key == kNcclLacks) report.nccl_lacks.push_back(value);
  if (key == kEnd) report.is_complete = true;
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
    Take(key, EscapeControl(line.substr(equals + 1)), report);
  }
  return report;
}

}  // namespace ddprun::launcher
