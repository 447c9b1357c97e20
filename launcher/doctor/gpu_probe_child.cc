#include "launcher/doctor/gpu_probe_child.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "launcher/doctor/gpu_report.h"
#include "launcher/doctor/nccl_build.h"
#include "launcher/process/exit_status.h"
#include "rendezvous/base/durable_file.h"
#include "worker_runtime/gpu/device_uuid.h"

namespace ddprun::launcher {
namespace {

using namespace probe_key;
using ddp::internal::CudaApi;
using ddp::internal::CudaDevice;
using ddp::internal::CudaResult;
using ddp::internal::CudaStatus;
using ddp::internal::LoadedCublas;
using ddp::internal::LoadedCuda;
using ddp::internal::LoadedNccl;
using ddp::internal::NcclApi;

constexpr char kStageOpen[] = "the NVIDIA driver (opening its library)";
constexpr char kStageInit[] = "the NVIDIA driver (cuInit)";
constexpr char kStageGpus[] = "the NVIDIA driver (asked for its GPUs)";
constexpr char kStageNccl[] = "NCCL (opening its library)";
constexpr char kStageCublas[] = "cuBLAS (opening its library)";

std::string Message(const absl::Status& status) { return std::string(status.message()); }

absl::StatusOr<Gpu> DescribeGpu(const CudaApi& api, int index) {
  Gpu gpu;
  absl::Status status;
  const auto call = [&](const char* name, CudaResult result) {
    if (status.ok()) status = CudaStatus(api, name, result);
  };
  CudaDevice device = 0;
  call("cuDeviceGet", api.cuDeviceGet(&device, index));
  if (!status.ok()) return status;
  char name[256] = "";
  call("cuDeviceGetName", api.cuDeviceGetName(name, sizeof name, device));
  char bus_id[64] = "";
  call("cuDeviceGetPCIBusId", api.cuDeviceGetPCIBusId(bus_id, sizeof bus_id, device));
  const absl::StatusOr<std::string> uuid = ddp::internal::DeviceUuid(api, device);
  status.Update(uuid.status());
  size_t memory = 0;
  call("cuDeviceTotalMem", api.cuDeviceTotalMem(&memory, device));
  call("cuDeviceGetAttribute",
       api.cuDeviceGetAttribute(&gpu.major,
                                ddp::internal::kCudaDeviceAttributeComputeCapabilityMajor, device));
  call("cuDeviceGetAttribute",
       api.cuDeviceGetAttribute(&gpu.minor,
                                ddp::internal::kCudaDeviceAttributeComputeCapabilityMinor, device));
  if (!status.ok()) return status;
  gpu.memory_bytes = memory;
  gpu.bus_id = bus_id;
  gpu.uuid = *uuid;
  gpu.name = name;
  return gpu;
}

// Whole lines at once: a pipe takes them without splitting.
void WriteLine(int fd, const std::string& line) {
  if (!WriteAll(fd, line, "stdout").ok()) _exit(kExitMachine);  // nobody listens any more
}

// stdout for ourselves: a library that prints there (NCCL_DEBUG does) must not write among the
// facts.
int TakeStdout() {
  const int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (fd < 0 || null < 0 || dup2(null, STDOUT_FILENO) < 0) _exit(kExitMachine);
  return fd;
}

}  // namespace

void TellDriver(const absl::StatusOr<LoadedCuda>& cuda, const ProbeSink& tell) {
  if (absl::IsNotFound(cuda.status())) return tell(kDriverMissing, Message(cuda.status()));
  if (!cuda.ok()) return tell(kDriverUnusable, Message(cuda.status()));
  tell(kDriverFile, cuda->path);
  tell(kCudaVersion, absl::StrCat(cuda->version));
}

void TellGpus(const CudaApi& api, const ProbeSink& tell) {
  tell(kStage, kStageInit);
  if (absl::Status status = CudaStatus(api, "cuInit", api.cuInit(0)); !status.ok()) {
    return tell(kGpuError, Message(status));
  }
  tell(kStage, kStageGpus);
  int count = 0;
  const CudaResult result = api.cuDeviceGetCount(&count);
  if (absl::Status status = CudaStatus(api, "cuDeviceGetCount", result); !status.ok()) {
    return tell(kGpuError, Message(status));
  }
  for (int index = 0; index < count; ++index) {
    const absl::StatusOr<Gpu> gpu = DescribeGpu(api, index);
    if (!gpu.ok()) {
      return tell(kGpuError, absl::StrCat("GPU ", index, ": ", gpu.status().message()));
    }
    tell(kGpu, EncodeGpu(*gpu));
  }
}

void TellNccl(const absl::StatusOr<LoadedNccl>& nccl, const ProbeSink& tell) {
  if (!nccl.ok()) return tell(kNcclError, Message(nccl.status()));
  tell(kNcclFile, nccl->path);
  tell(kNcclVersion, ddp::internal::NcclVersionText(nccl->version));
  tell(kNcclCudaVersion, absl::StrCat(CudaOfNcclFile(nccl->path)));
  if (!nccl->can_register()) tell(kNcclLacks, "ncclMemAlloc and ncclCommRegister (since 2.19)");
  if (!nccl->can_revoke()) tell(kNcclLacks, "ncclCommRevoke (since 2.28.7)");
}

void TellCublas(const absl::StatusOr<LoadedCublas>& cublas, const ProbeSink& tell) {
  if (!cublas.ok()) return tell(kCublasError, Message(cublas.status()));
  tell(kCublasFile, cublas->path);
  tell(kCublasVersion, cublas->version);
}

void RunGpuProbe(std::string_view word) {
  const int fd = TakeStdout();
  // A driver that crashes is reported; a core file of the launcher would only mislead.
  const rlimit no_core{};
  setrlimit(RLIMIT_CORE, &no_core);
  const ProbeSink tell = [fd](std::string_view key, std::string_view value) {
    WriteLine(fd, ProbeLine(key, value));
  };
  tell(kStage, kStageOpen);
  const absl::StatusOr<LoadedCuda> cuda = ddp::internal::LoadCuda();
  TellDriver(cuda, tell);
  // The driver's own work comes last: when it hangs, the rest is known.
  if (word == kProbeAllWord) {
    tell(kStage, kStageNccl);
    TellNccl(ddp::internal::LoadNccl(), tell);
    tell(kStage, kStageCublas);
    TellCublas(ddp::internal::LoadCublas(), tell);
  }
  if (cuda.ok()) TellGpus(cuda->api, tell);
  tell(kEnd, "");
  _exit(kExitSuccess);
}

}  // namespace ddprun::launcher
