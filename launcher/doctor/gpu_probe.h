// Asks a child process for the GPUs: this process never opens CUDA.
#ifndef DDPRUN_LAUNCHER_DOCTOR_GPU_PROBE_H_
#define DDPRUN_LAUNCHER_DOCTOR_GPU_PROBE_H_

#include <chrono>
#include <string>
#include <vector>

#include "launcher/doctor/doctor_facts.h"
#include "rendezvous/base/clock.h"

namespace ddprun::launcher {

// The first argument of a ddprun that is such a child; the second is one of the scopes.
inline constexpr char kProbeArgument[] = "__gpu_probe";
inline constexpr char kProbeGpus[] = "gpus";  // the driver and its GPUs
inline constexpr char kProbeAll[] = "all";    // NCCL and cuBLAS too

// A driver that is loaded and well initialises in a second or two, with eight GPUs as well; one in
// trouble may hang for ever.
inline constexpr std::chrono::seconds kProbeDeadline{10};

// Executes this program anew as the probe and waits for it, `kProbeDeadline` at most. Whatever goes
// wrong is told in the report. REQUIRES: this process has one thread.
GpuReport ProbeGpus(const std::string& scope);

// The same with any program; argv[0] is its path.
GpuReport RunProbe(const std::vector<std::string>& argv, std::chrono::milliseconds deadline,
                   const Clock& clock);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_GPU_PROBE_H_
