#include "launcher/doctor/doctor_facts.h"

#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

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

int NumberOrZero(const std::string& text) {
  int number = 0;
  return absl::SimpleAtoi(text, &number) ? number : 0;
}

// The facts that are taken as they come.
constexpr std::pair<std::string_view, std::string GpuReport::*> kTexts[] = {
    {"stage", &GpuReport::stage},
    {"driver_file", &GpuReport::driver_file},
    {"driver_missing", &GpuReport::driver_error},
    {"driver_unusable", &GpuReport::driver_error},
    {"gpu_error", &GpuReport::gpu_error},
    {"nccl_file", &GpuReport::nccl_file},
    {"nccl_version", &GpuReport::nccl_version},
    {"nccl_error", &GpuReport::nccl_error},
    {"cublas_file", &GpuReport::cublas_file},
    {"cublas_version", &GpuReport::cublas_version},
    {"cublas_error", &GpuReport::cublas_error},
};

void Take(std::string_view key, const std::string& value, GpuReport& report) {
  for (const auto& [name, member] : kTexts) {
    if (key == name) report.*member = value;
  }
  if (key == "driver_file") report.driver = DriverState::kOpened;
  if (key == "driver_missing") report.driver = DriverState::kMissing;
  if (key == "driver_unusable") report.driver = DriverState::kUnusable;
  if (key == "cuda_version") report.cuda_version = NumberOrZero(value);
  if (key == "nccl_cuda_version") report.nccl_cuda_version = NumberOrZero(value);
  if (key == "gpu" && report.gpus.size() < kMaxGpus) {
    if (const std::optional<Gpu> gpu = DecodeGpu(value)) report.gpus.push_back(*gpu);
  }
  if (key == "nccl_lacks") report.nccl_lacks.push_back(value);
  if (key == "end") report.is_complete = true;
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
