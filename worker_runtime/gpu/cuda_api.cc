#include "worker_runtime/gpu/cuda_api.h"

#include <cstdlib>

#include "ddp/dynamic_library.h"
#include "worker_runtime/gpu/cuda_functions.h"

namespace ddp::internal {
namespace {

constexpr char kVariable[] = "DDPRUN_CUDA_LIB";
constexpr char kLibrary[] = "libcuda.so.1";

std::string CudaVersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

absl::StatusOr<DynamicLibrary> OpenDriver() {
  const char* given = std::getenv(kVariable);
  const bool is_given = given != nullptr && *given != '\0';
  auto library = DynamicLibrary::Open(is_given ? given : kLibrary);
  if (library.ok()) return library;
  const std::string text = "CUDA driver: ";
  const std::string cause(library.status().message());
  if (is_given) {
    return absl::NotFoundError(text + kVariable + ": " + cause +
                               "; name the driver's library, or unset the variable");
  }
  return absl::NotFoundError(text + cause +
                             "; install the NVIDIA driver, or start the container with --gpus "
                             "(NVIDIA_DRIVER_CAPABILITIES=compute,utility)");
}

absl::Status Fill(const DynamicLibrary& library, CudaApi* api) {
  absl::Status status;
  const auto take = [&](const char* symbol, auto& member, int since) {
    if (library.Take(symbol, member) || !status.ok()) return;
    status = absl::FailedPreconditionError(
        "CUDA driver " + library.path() + ": it has no " + symbol + ", which drivers for CUDA " +
        CudaVersionText(since) + " and newer have; update the NVIDIA driver");
  };
#define DDPRUN_TAKE(member, symbol, since) take(#symbol, api->member, since);
  DDPRUN_CUDA_FUNCTIONS(DDPRUN_TAKE)
#undef DDPRUN_TAKE
  (void)library.Take("cuDeviceGetUuid", api->cuDeviceGetGpuUuid);
  return status;
}

absl::StatusCode CodeOf(CudaResult result) {
  switch (result) {
    case kCudaErrorOutOfMemory:
      return absl::StatusCode::kResourceExhausted;
    case kCudaErrorStubLibrary:
    case kCudaErrorDeviceUnavailable:
    case kCudaErrorNoDevice:
    case kCudaErrorInvalidDevice:
    case kCudaErrorNoBinaryForGpu:
    case kCudaErrorInvalidPtx:
    case kCudaErrorUnsupportedPtxVersion:
    case kCudaErrorSystemDriverMismatch:
    case kCudaErrorCompatNotSupportedOnDevice:
      return absl::StatusCode::kFailedPrecondition;
    case kCudaErrorInvalidValue:
    case kCudaErrorInvalidContext:
    case kCudaErrorInvalidHandle:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::StatusOr<LoadedCuda> LoadCuda() {
  const auto library = OpenDriver();
  if (!library.ok()) return library.status();
  LoadedCuda cuda;
  cuda.path = library->path();
  if (const auto status = Fill(*library, &cuda.api); !status.ok()) return status;
  // The toolkit's link-time stand-in has every symbol; this call is how it shows.
  const CudaResult result = cuda.api.cuDriverGetVersion(&cuda.version);
  if (const auto status = CudaStatus(cuda.api, "cuDriverGetVersion", result); !status.ok()) {
    return absl::Status(absl::StatusCode::kFailedPrecondition,
                        "CUDA driver " + cuda.path + ": " + std::string(status.message()) +
                            "; is it the toolkit's stub, or a driver without its kernel module?");
  }
  return cuda;
}

absl::Status CudaStatus(const CudaApi& api, const char* call, CudaResult result) {
  if (result == kCudaSuccess) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  const bool is_named = api.cuGetErrorName(result, &name) == kCudaSuccess && name != nullptr;
  const bool is_told = api.cuGetErrorString(result, &text) == kCudaSuccess && text != nullptr;
  std::string message = std::string(call) + ": " + (is_told ? text : "unknown error") + " (";
  message += is_named ? std::string(name) : "CUresult " + std::to_string(result);
  return absl::Status(CodeOf(result), message + ")");
}

}  // namespace ddp::internal
