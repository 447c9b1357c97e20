#include "launcher/doctor/gpu_probe_child.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ddp/dynamic_library.h"
#include "launcher/doctor/doctor_facts.h"
#include "launcher/process/exit_status.h"
#include "rendezvous/base/durable_file.h"
#include "worker_runtime/gpu/device_uuid.h"

namespace ddprun::launcher {
namespace {

using namespace ddp::internal;  // CUDA and NCCL, as they are looked up
using ddp::DynamicLibrary;

constexpr std::string_view kNcclLine = "NCCL version ";
constexpr size_t kLongestLine = 64;
constexpr size_t kPiece = 1 << 20, kMaxBytes = 64 * kPiece;

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
  const absl::StatusOr<std::string> uuid = DeviceUuid(api, device);
  status.Update(uuid.status());
  size_t memory = 0;
  call("cuDeviceTotalMem", api.cuDeviceTotalMem(&memory, device));
  call("cuDeviceGetAttribute",
       api.cuDeviceGetAttribute(&gpu.major, kCudaDeviceAttributeComputeCapabilityMajor, device));
  call("cuDeviceGetAttribute",
       api.cuDeviceGetAttribute(&gpu.minor, kCudaDeviceAttributeComputeCapabilityMinor, device));
  if (!status.ok()) return status;
  gpu.memory_bytes = memory;
  gpu.bus_id = bus_id;
  gpu.uuid = *uuid;
  gpu.name = name;
  return gpu;
}

// Of the NCCL whose version stands in front of `line`.
int CudaOf(std::string line) {
  line = line.substr(0, line.find_first_of(std::string_view("\0 \n", 3)));
  const size_t at = line.find("+cuda");
  if (at == std::string::npos) return 0;
  int major = 0, minor = -1;
  std::sscanf(line.c_str() + at, "+cuda%3d.%3d", &major, &minor);
  return major < 1 || minor < 0 ? 0 : major * 1000 + minor * 10;
}

// Its path and version, by the one function of it that needs no GPU.
absl::Status ReadCublas(const DynamicLibrary& library, FoundCublas* cublas) {
  constexpr int kParts = 3;  // libraryPropertyType: major, minor, patch
  int parts[kParts] = {};
  int (*get_property)(int property, int* value) = nullptr;
  bool is_told = library.Take("cublasGetProperty", get_property);
  for (int i = 0; is_told && i < kParts; ++i) is_told = get_property(i, &parts[i]) == 0;
  if (!is_told) {
    return absl::FailedPreconditionError(library.path() + ": cublasGetProperty tells no version");
  }
  *cublas = {.path = library.path(), .version = absl::StrJoin(parts, ".")};
  return absl::OkStatus();
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

absl::StatusOr<FoundCublas> FindCublas() {
  FoundCublas cublas;
  const absl::Status status = ddp::SearchLibrary(
      ddp::CublasPlaces(),
      [&cublas](const DynamicLibrary& library) { return ReadCublas(library, &cublas); });
  if (!status.ok()) return status;
  return cublas;
}

int CudaInNcclBytes(std::string_view bytes) {
  for (size_t at = bytes.find(kNcclLine); at != std::string_view::npos;
       at = bytes.find(kNcclLine, at + 1)) {
    const int version = CudaOf(std::string(bytes.substr(at + kNcclLine.size(), kLongestLine)));
    if (version != 0) return version;
  }
  return 0;
}

int CudaOfNcclFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  // Each piece begins with the end of the one before, in which the line may have begun.
  constexpr size_t kKept = kNcclLine.size() + kLongestLine;
  std::vector<char> buffer(kKept + kPiece);
  size_t kept = 0;
  for (size_t read = 0; read < kMaxBytes && file; read += kPiece) {
    file.read(buffer.data() + kept, static_cast<std::streamsize>(kPiece));
    const size_t held = kept + static_cast<size_t>(file.gcount());
    const int version = CudaInNcclBytes({buffer.data(), held});
    if (version != 0) return version;
    kept = std::min(held, kKept);
    std::copy(buffer.data() + (held - kept), buffer.data() + held, buffer.data());
  }
  return 0;
}

void TellDriver(const absl::StatusOr<LoadedCuda>& cuda, const ProbeSink& tell) {
  if (absl::IsNotFound(cuda.status())) return tell("driver_missing", Message(cuda.status()));
  if (!cuda.ok()) return tell("driver_unusable", Message(cuda.status()));
  tell("driver_file", cuda->path);
  tell("cuda_version", absl::StrCat(cuda->version));
}

void TellGpus(const CudaApi& api, const ProbeSink& tell) {
  tell("stage", "the NVIDIA driver (cuInit)");
  if (absl::Status status = CudaStatus(api, "cuInit", api.cuInit(0)); !status.ok()) {
    return tell("gpu_error", Message(status));
  }
  tell("stage", "the NVIDIA driver (asked for its GPUs)");
  int count = 0;
  const CudaResult result = api.cuDeviceGetCount(&count);
  if (absl::Status status = CudaStatus(api, "cuDeviceGetCount", result); !status.ok()) {
    return tell("gpu_error", Message(status));
  }
  for (int index = 0; index < count; ++index) {
    const absl::StatusOr<Gpu> gpu = DescribeGpu(api, index);
    if (!gpu.ok()) {
      return tell("gpu_error", absl::StrCat("GPU ", index, ": ", gpu.status().message()));
    }
    tell("gpu", EncodeGpu(*gpu));
  }
}

void TellNccl(const absl::StatusOr<LoadedNccl>& nccl, const ProbeSink& tell) {
  if (!nccl.ok()) return tell("nccl_error", Message(nccl.status()));
  tell("nccl_file", nccl->path);
  tell("nccl_version", NcclVersionText(nccl->version));
  tell("nccl_cuda_version", absl::StrCat(CudaOfNcclFile(nccl->path)));
  if (!nccl->can_register()) tell("nccl_lacks", "ncclMemAlloc and ncclCommRegister (since 2.19)");
}

void TellCublas(const absl::StatusOr<FoundCublas>& cublas, const ProbeSink& tell) {
  if (!cublas.ok()) return tell("cublas_error", Message(cublas.status()));
  tell("cublas_file", cublas->path);
  tell("cublas_version", cublas->version);
}

void RunGpuProbe(std::string_view scope) {
  const int fd = TakeStdout();
  // A driver that crashes is reported; a core file of the launcher would only mislead.
  const rlimit no_core{};
  setrlimit(RLIMIT_CORE, &no_core);
  const ProbeSink tell = [fd](std::string_view key, std::string_view value) {
    // Whole lines at once: a pipe takes them without splitting.
    if (!WriteAll(fd, ProbeLine(key, value), "stdout").ok()) _exit(kExitMachine);  // nobody listens
  };
  tell("stage", "the NVIDIA driver (opening its library)");
  const absl::StatusOr<LoadedCuda> cuda = LoadCuda();
  TellDriver(cuda, tell);
  // The driver's own work comes last: when it hangs, the rest is known.
  if (scope == kProbeAll) {
    tell("stage", "NCCL (opening its library)");
    TellNccl(LoadNccl(), tell);
    tell("stage", "cuBLAS (opening its library)");
    TellCublas(FindCublas(), tell);
  }
  if (cuda.ok()) TellGpus(cuda->api, tell);
  tell("end", "");
  _exit(kExitSuccess);
}

}  // namespace ddprun::launcher
