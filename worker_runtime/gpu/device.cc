#include "worker_runtime/gpu/device.h"

#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/quiet_thread.h"
#include "worker_runtime/gpu/device_uuid.h"
#include "worker_runtime/gpu/relaxed_capture.h"

namespace ddp::internal {

absl::StatusOr<int> CountGpus(const CudaApi& api) {
  CudaResult result = api.cuInit(0);
  if (result == kCudaErrorNoDevice) return 0;
  if (result != kCudaSuccess) return CudaStatus(api, "cuInit", result);
  int count = 0;
  result = api.cuDeviceGetCount(&count);
  if (result == kCudaErrorNoDevice) return 0;
  if (result != kCudaSuccess) return CudaStatus(api, "cuDeviceGetCount", result);
  return count;
}

absl::StatusOr<int> OrdinalFor(int local_rank, int count) {
  if (count == 1) return 0;
  if (local_rank < count) return local_rank;
  if (count == 0) {
    return absl::FailedPreconditionError(
        "CUDA shows no GPU (is CUDA_VISIBLE_DEVICES empty or -1, or the container started without "
        "GPUs?)");
  }
  return absl::FailedPreconditionError(
      absl::StrCat("local rank ", local_rank, " has no GPU: CUDA shows ", count,
                   " (start at most that many ranks on this node, or check "
                   "CUDA_VISIBLE_DEVICES)"));
}

absl::StatusOr<std::unique_ptr<Device>> Device::Open(const CudaApi& api, int ordinal) {
  std::unique_ptr<Device> device(new Device(api, ordinal));
  CudaResult result = api.cuDeviceGet(&device->device_, ordinal);
  if (result != kCudaSuccess) {
    return CudaStatus(api, absl::StrCat("cuDeviceGet(", ordinal, ")").c_str(), result);
  }
  char name[256] = {};
  if (api.cuDeviceGetName(name, sizeof(name) - 1, device->device_) == kCudaSuccess) {
    device->name_ = name;
  }
  absl::StatusOr<std::string> uuid = DeviceUuid(api, device->device_);
  if (!uuid.ok()) return uuid.status();
  device->uuid_ = *std::move(uuid);
  result = api.cuDevicePrimaryCtxRetain(&device->context_, device->device_);
  if (result != kCudaSuccess) {
    device->context_ = nullptr;
    absl::Status status = CudaStatus(api, "cuDevicePrimaryCtxRetain", result);
    return absl::Status(status.code(), absl::StrCat("open GPU ", ordinal, " (", device->name_,
                                                    "): ", status.message()));
  }
  return device;
}

Device::~Device() {
  if (context_ != nullptr && !is_abandoned_) api_.cuDevicePrimaryCtxRelease(device_);
}

absl::Status Device::Free(std::function<absl::Status()> free,
                          std::chrono::milliseconds patience) const {
  std::packaged_task<absl::Status()> task(
      [free = std::move(free), &api = api_, context = context_]() -> absl::Status {
        const RelaxedCapture relaxed(api);
        const CudaResult result = api.cuCtxSetCurrent(context);
        return result == kCudaSuccess ? free() : CudaStatus(api, "cuCtxSetCurrent", result);
      });
  std::future<absl::Status> freed = task.get_future();
  auto shared = std::make_shared<std::packaged_task<absl::Status()>>(std::move(task));
  std::thread thread = ddprun::StartQuietThread([shared] { (*shared)(); });
  if (!thread.joinable()) {
    (*shared)();  // the machine has no thread for it
  } else {
    thread.detach();
  }
  if (freed.wait_for(patience) == std::future_status::ready) return freed.get();
  return absl::DeadlineExceededError(
      absl::StrCat("GPU ", ordinal_, " did not end its work in ", patience.count(), " ms"));
}

void Device::ReachDirectly(const Device& other) const {
  const CurrentDevice current(*this);
  int can_access = 0;
  if (!current.status().ok()) return;
  if (api_.cuDeviceCanAccessPeer(&can_access, device_, other.device_) != kCudaSuccess) return;
  // What goes wrong, as for the ninth peer of a GPU, or a second call, costs nothing but speed.
  if (can_access != 0) api_.cuCtxEnablePeerAccess(other.context_, /*flags=*/0);
}

absl::Status Device::MakeCurrent() const {
  return CudaStatus(api_, "cuCtxSetCurrent", api_.cuCtxSetCurrent(context_));
}

CurrentDevice::CurrentDevice(const Device& device) : api_(device.api_) {
  status_ = CudaStatus(api_, "cuCtxGetCurrent", api_.cuCtxGetCurrent(&before_));
  if (!status_.ok() || before_ == device.context_) return;
  status_ = device.MakeCurrent();
  must_restore_ = status_.ok();
}

CurrentDevice::~CurrentDevice() {
  if (must_restore_) api_.cuCtxSetCurrent(before_);
}

}  // namespace ddp::internal
