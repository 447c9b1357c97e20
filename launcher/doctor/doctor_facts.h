// Everything that `ddprun doctor` looks at, as plain values. [pure]
#ifndef DDPRUN_LAUNCHER_DOCTOR_DOCTOR_FACTS_H_
#define DDPRUN_LAUNCHER_DOCTOR_DOCTOR_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/doctor/gpu_report.h"

namespace ddprun::launcher {

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

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_DOCTOR_FACTS_H_
