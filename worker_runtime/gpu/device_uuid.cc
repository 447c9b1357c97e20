#include "worker_runtime/gpu/device_uuid.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace ddp::internal {
namespace {

bool IsMig(const CudaApi& api, CudaDevice device, const CudaUuid& uuid) {
  CudaUuid of_gpu{};
  if (api.cuDeviceGetGpuUuid != nullptr &&
      api.cuDeviceGetGpuUuid(&of_gpu, device) == kCudaSuccess &&
      std::memcmp(&uuid, &of_gpu, sizeof(uuid)) != 0) {
    return true;
  }
  char name[256] = "";
  return api.cuDeviceGetName(name, sizeof(name) - 1, device) == kCudaSuccess &&
         std::strstr(name, " MIG ") != nullptr;
}

}  // namespace

absl::StatusOr<std::string> DeviceUuid(const CudaApi& api, CudaDevice device) {
  CudaUuid uuid{};
  const CudaResult result = api.cuDeviceGetUuid(&uuid, device);
  if (result != kCudaSuccess) return CudaStatus(api, "cuDeviceGetUuid", result);
  std::string text = IsMig(api, device, uuid) ? "MIG-" : "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    // Not absl's StrFormat: its archive cannot be linked into libddp_stop.so.
    absl::StrAppend(&text, absl::Hex(static_cast<unsigned char>(uuid.bytes[i]), absl::kZeroPad2));
  }
  return text;
}

}  // namespace ddp::internal
