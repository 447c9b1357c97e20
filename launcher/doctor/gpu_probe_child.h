// The probe itself: the one process of ddprun that opens CUDA, NCCL and cuBLAS.
#ifndef DDPRUN_LAUNCHER_DOCTOR_GPU_PROBE_CHILD_H_
#define DDPRUN_LAUNCHER_DOCTOR_GPU_PROBE_CHILD_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "launcher/doctor/gpu_probe.h"
#include "worker_runtime/gpu/cuda_api.h"
#include "worker_runtime/gpu/nccl_api.h"

namespace ddprun::launcher {

// Takes one fact, its key and its value, and passes it on before it returns.
using ProbeSink = std::function<void(std::string_view key, std::string_view value)>;

// cuBLAS, where ddp::CublasPlaces() says that it may lie, as the trainer does.
struct FoundCublas {
  std::string path;     // of the file, as the loader found it
  std::string version;  // "13.1.0"
};
// Touches no GPU. Errors: NotFound naming every place that was looked at; FailedPrecondition naming
// what is wrong with the library that is there.
absl::StatusOr<FoundCublas> FindCublas();

// Each says what it learns; TellGpus, which calls the driver, names its stages first.
void TellDriver(const absl::StatusOr<ddp::internal::LoadedCuda>& cuda, const ProbeSink& tell);
void TellGpus(const ddp::internal::CudaApi& api, const ProbeSink& tell);
void TellNccl(const absl::StatusOr<ddp::internal::LoadedNccl>& nccl, const ProbeSink& tell);
void TellCublas(const absl::StatusOr<FoundCublas>& cublas, const ProbeSink& tell);

// Which CUDA an NCCL was built for. Its functions do not say, but its file holds the line that
// NCCL_DEBUG=VERSION prints: "NCCL version 2.28.7+cuda13.0". 13000 for this one, wherever it stands
// in `bytes`; 0: there is none.
int CudaInNcclBytes(std::string_view bytes);
// The same of a file. Only its first 64 MiB are looked at: the text precedes the kernels, and a
// build of NCCL is up to 400 MB. 0 also for a file that cannot be read.
int CudaOfNcclFile(const std::string& path);

// Writes what is found to stdout and ends the process, without running what libraries want done at
// the end of one. `scope` is that of ProbeGpus.
[[noreturn]] void RunGpuProbe(std::string_view scope);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_GPU_PROBE_CHILD_H_
