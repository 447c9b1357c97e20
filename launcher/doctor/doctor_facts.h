// Everything that `ddprun doctor` looks at, as plain values; how the GPU probe tells its part over
// a pipe. [pure]
#ifndef DDPRUN_LAUNCHER_DOCTOR_DOCTOR_FACTS_H_
#define DDPRUN_LAUNCHER_DOCTOR_DOCTOR_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/system_facts.h"

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
  std::vector<std::string> nccl_lacks;  // "ncclCommRegister (since 2.19)"
  std::string nccl_error;

  std::string cublas_file;
  std::string cublas_version;  // "13.1.0"
  std::string cublas_error;

  std::string stage;         // what the probe was at last: "the NVIDIA driver (cuInit)"
  bool is_complete = false;  // the probe said all it had to say
  std::string interrupted;   // else why not, one line
};

// About the driver, known without opening it.
struct DriverFacts {
  std::string kernel_module;                   // its version; empty: it is not loaded
  int gpus_in_machine = 0;                     // that the kernel module has, visible or not
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES
};

struct NetworkInterface {
  std::string name;
  bool is_up = false;
  bool is_loopback = false;
  std::vector<std::string> addresses;
  int64_t megabits = 0;  // a second; 0: the device does not say
};

struct InfinibandPort {
  std::string device;
  int port = 1;
  std::string state;  // "ACTIVE"
  std::string rate;   // "400 Gb/sec (4X NDR)"
};

struct HostFacts {
  SystemFacts system;
  DriverFacts driver;
  std::string nvcc_file;        // empty: no toolkit
  std::string toolkit_version;  // empty: not found
  std::vector<NetworkInterface> network;
  std::vector<InfinibandPort> infiniband;
  std::optional<uint64_t> memlock_bytes;  // none: no limit
  std::optional<uint64_t> open_files;     // the soft limit; none: no limit
  std::optional<uint64_t> open_files_hard;
  bool has_shm = false;
  uint64_t shm_bytes = 0;
  uint64_t shm_free_bytes = 0;
  int numa_nodes = 0;  // 0: the kernel does not say
};

struct DoctorFacts {
  GpuReport gpu;
  HostFacts host;
};

// The line "key=value" of one fact, newline included. Control characters in `value` are escaped: it
// comes from a library.
std::string ProbeLine(std::string_view key, std::string_view value);
// The value of a `gpu` line.
std::string EncodeGpu(const Gpu& gpu);
// Reads everything that the probe wrote: a line for each fact, as it learnt them. Lines that make
// no sense are skipped.
GpuReport ParseProbeLines(std::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_DOCTOR_FACTS_H_
