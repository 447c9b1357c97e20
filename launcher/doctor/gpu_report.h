// What the GPU probe found, and how it says so over a pipe. [pure]
#ifndef DDPRUN_LAUNCHER_DOCTOR_GPU_REPORT_H_
#define DDPRUN_LAUNCHER_DOCTOR_GPU_REPORT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::launcher {

struct Gpu {
  uint64_t memory_bytes = 0;
  int major = 0;  // compute capability
  int minor = 0;
  std::string bus_id;
  std::string uuid;  // "GPU-01234567-89ab-...", or "MIG-...", as CUDA_VISIBLE_DEVICES takes it
  std::string name;
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

enum class DriverState {
  kUnknown,   // not asked, or the probe ended before it knew
  kMissing,   // driver_error names what was looked for
  kUnusable,  // there, but not one that can be used: driver_error says why
  kOpened,
};

struct GpuReport {
  DriverState driver = DriverState::kUnknown;
  std::string driver_file;
  std::string driver_error;
  int cuda_version = 0;  // the newest that the driver serves: 12040 is 12.4

  std::vector<Gpu> gpus;  // by index, as CUDA_VISIBLE_DEVICES leaves them
  std::string gpu_error;  // what the driver said in place of a list

  std::string nccl_file;
  std::string nccl_version;             // "2.28.7"
  int nccl_cuda_version = 0;            // that it was built for: 13000 is 13.0; 0: unknown
  std::vector<std::string> nccl_lacks;  // "ncclCommRevoke (since 2.28.7)"
  std::string nccl_error;

  std::string cublas_file;
  std::string cublas_version;  // "13.1.0"
  std::string cublas_error;

  std::string stage;         // what the probe was at last: "the NVIDIA driver (cuInit)"
  bool is_complete = false;  // the probe said all it had to say
  std::string interrupted;   // else why not, one line
};

// The keys of the lines "key=value" that the probe writes, one fact each, as it learns them.
namespace probe_key {
inline constexpr std::string_view kStage = "stage";
inline constexpr std::string_view kDriverFile = "driver_file";
inline constexpr std::string_view kDriverMissing = "driver_missing";
inline constexpr std::string_view kDriverUnusable = "driver_unusable";
inline constexpr std::string_view kCudaVersion = "cuda_version";
inline constexpr std::string_view kGpu = "gpu";
inline constexpr std::string_view kGpuError = "gpu_error";
inline constexpr std::string_view kNcclFile = "nccl_file";
inline constexpr std::string_view kNcclVersion = "nccl_version";
inline constexpr std::string_view kNcclCudaVersion = "nccl_cuda_version";
inline constexpr std::string_view kNcclLacks = "nccl_lacks";
inline constexpr std::string_view kNcclError = "nccl_error";
inline constexpr std::string_view kCublasFile = "cublas_file";
inline constexpr std::string_view kCublasVersion = "cublas_version";
inline constexpr std::string_view kCublasError = "cublas_error";
inline constexpr std::string_view kEnd = "end";
}  // namespace probe_key

// One line, newline included. Control characters in `value` are escaped: it comes from a library.
std::string ProbeLine(std::string_view key, std::string_view value);
// The value of a `gpu` line.
std::string EncodeGpu(const Gpu& gpu);
// Reads everything that the probe wrote. Lines that make no sense are skipped.
GpuReport ParseProbeLines(std::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_GPU_REPORT_H_
