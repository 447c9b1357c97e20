#include "worker_runtime/comm/nccl/device_buffer.h"

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_runtime/gpu/relaxed_capture.h"

namespace ddp::internal {
namespace {

// For how long memory that goes waits for what uses it: an optimizer's step takes milliseconds.
constexpr std::chrono::seconds kIdlePatience(5);
constexpr std::chrono::microseconds kLook(100);

class DeviceBuffer final : public Buffer {
 public:
  DeviceBuffer(const Device& device, NcclCommunication* communication, size_t bytes,
               BufferOwner owner)
      : device_(device), communication_(communication), bytes_(bytes), owner_(std::move(owner)) {}

  ~DeviceBuffer() override {
    if (data_ != 0 && owner_.may_free()) Free();
    for (const CudaEvent event : {written_, ended_}) {
      if (event != nullptr) owner_.pool->GiveBack(event);
    }
  }

  // The operations and the last Zero() or Copy() are awaited by events. The caller's own kernels
  // may still use the memory: of a step that failed between its update and its end. cuMemFree waits
  // for all streams without a bound; ncclMemFree unmaps the memory under them, so that a word of
  // the driver's own goes first, and takes the wait. REQUIRES: nccl_mutex_ is not held.
  void Free() {
    const CurrentDevice current(device_);
    const RelaxedCapture relaxed(device_.api());
    const CudaPointer data = std::exchange(data_, 0);
    const bool is_plain = communication_ == nullptr;
    Device::Memory awaited;
    if (const CudaPointer word = is_plain ? data : fence_; word != 0) awaited.on_device = {word};
    absl::Status freed = AwaitUses();
    if (freed.ok()) freed = device_.Free(std::move(awaited), kIdlePatience);
    if (!freed.ok()) {
      std::fprintf(stderr, "ddp: %zu bytes of GPU memory are left to the end of the process: %s\n",
                   bytes_, std::string(freed.message()).c_str());
      return;
    }
    if (is_plain) return;
    Deregister();
    communication_->api().ncclMemFree(reinterpret_cast<void*>(data));
  }

  absl::Status Allocate() {
    const CurrentDevice current(device_);
    if (!current.status().ok()) return current.status();
    for (CudaEvent* event : {&written_, &ended_}) {
      const absl::StatusOr<CudaEvent> taken = owner_.pool->Take();
      if (!taken.ok()) return taken.status();
      *event = *taken;
    }
    absl::Status status = communication_ == nullptr ? AllocatePlain() : AllocateRegistered();
    if (status.ok()) status = Zero(nullptr);
    if (!status.ok()) return status;
    return CudaStatus(device_.api(), "cuStreamSynchronize",
                      device_.api().cuStreamSynchronize(nullptr));
  }

  void* data() const override { return reinterpret_cast<void*>(data_); }
  size_t bytes() const override { return bytes_; }

  absl::Status Zero(Stream stream) override {
    const CurrentDevice current(device_);
    if (!current.status().ok()) return current.status();
    const CudaApi& api = device_.api();
    const auto on = static_cast<CudaStream>(stream);
    const CudaResult result = api.cuMemsetD8Async(data_, 0, bytes_, on);
    if (result != kCudaSuccess) return CudaStatus(api, "cuMemsetD8Async", result);
    return NoteWrite(on);
  }

  absl::Status Copy(void* to, const void* from, size_t bytes, Stream stream) override {
    if (bytes == 0) return absl::OkStatus();
    const CurrentDevice current(device_);
    if (!current.status().ok()) return current.status();
    const auto on = static_cast<CudaStream>(stream);
    const CudaResult result =
        device_.api().cuMemcpyDtoDAsync(AddressOf(to), AddressOf(from), bytes, on);
    if (result != kCudaSuccess) return CudaStatus(device_.api(), "cuMemcpyDtoDAsync", result);
    return NoteWrite(on);
  }

 private:
  absl::Status NoteWrite(CudaStream on) {
    const CudaApi& api = device_.api();
    int state = kCudaCaptureStatusNone;
    // A replay is awaited as an operation.
    const bool is_captured =
        api.cuStreamIsCapturing(on, &state) == kCudaSuccess && state != kCudaCaptureStatusNone;
    if (is_captured) return absl::OkStatus();
    is_written_ = true;
    return CudaStatus(api, "cuEventRecord", api.cuEventRecord(written_, on));
  }

  absl::Status AwaitUses() {
    const CudaApi& api = device_.api();
    CudaResult result = api.cuEventRecord(ended_, owner_.stream);
    const auto deadline = std::chrono::steady_clock::now() + kIdlePatience;
    for (const CudaEvent event : {written_, ended_}) {
      if (event == written_ && !is_written_) continue;
      while (result == kCudaSuccess && (result = api.cuEventQuery(event)) == kCudaErrorNotReady) {
        if (std::chrono::steady_clock::now() >= deadline) {
          return absl::DeadlineExceededError("an operation with it did not end in 5 s");
        }
        result = kCudaSuccess;
        std::this_thread::sleep_for(kLook);
      }
    }
    return CudaStatus(api, "wait for the operations with it", result);
  }

  void Deregister() {
    const std::lock_guard nccl(owner_.nccl_mutex);
    // After an orderly end the registration has gone with NCCL's communicator.
    if (handle_ == nullptr || communication_->get() == nullptr) return;
    communication_->api().ncclCommDeregister(communication_->get(), handle_);
  }

  absl::Status AllocatePlain() {
    return CudaStatus(device_.api(), absl::StrCat("cuMemAlloc of ", bytes_, " bytes").c_str(),
                      device_.api().cuMemAlloc(&data_, bytes_));
  }

  absl::Status AllocateRegistered() {
    void* memory = nullptr;
    NcclResult result = communication_->api().ncclMemAlloc(&memory, bytes_);
    if (result != kNcclSuccess) {
      const std::lock_guard nccl(owner_.nccl_mutex);
      return communication_->Explain(absl::StrCat("ncclMemAlloc of ", bytes_, " bytes").c_str(),
                                     result);
    }
    data_ = reinterpret_cast<CudaPointer>(memory);
    const CudaResult fenced = device_.api().cuMemAlloc(&fence_, sizeof(int32_t));
    if (fenced != kCudaSuccess) return CudaStatus(device_.api(), "cuMemAlloc", fenced);
    const std::lock_guard nccl(owner_.nccl_mutex);
    result =
        communication_->api().ncclCommRegister(communication_->get(), memory, bytes_, &handle_);
    return communication_->Explain("ncclCommRegister", result);
  }

  const Device& device_;
  NcclCommunication* const communication_;  // null: plain memory
  const size_t bytes_;
  const BufferOwner owner_;
  CudaEvent written_ = nullptr;  // the last Zero() or Copy(), once there was one
  bool is_written_ = false;
  CudaEvent ended_ = nullptr;  // all operations that were called before the end
  CudaPointer data_ = 0;
  CudaPointer fence_ = 0;  // of registered memory
  void* handle_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Buffer>> AllocateDeviceBuffer(const Device& device,
                                                             NcclCommunication* communication,
                                                             size_t bytes, BufferOwner owner) {
  auto buffer = std::make_unique<DeviceBuffer>(device, communication, bytes, std::move(owner));
  if (absl::Status status = buffer->Allocate(); !status.ok()) return status;
  return std::unique_ptr<Buffer>(std::move(buffer));
}

}  // namespace ddp::internal
