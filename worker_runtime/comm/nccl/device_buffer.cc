#include "worker_runtime/comm/nccl/device_buffer.h"

#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ddp/gpu.h"
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
    if (reached_ != nullptr) owner_.queue.pool()->GiveBack(reached_);
  }

  absl::Status Allocate() {
    const CurrentDevice current(device_);
    if (!current.status().ok()) return current.status();
    const absl::StatusOr<CudaEvent> event = owner_.queue.pool()->Take();
    if (!event.ok()) return event.status();
    reached_ = *event;
    absl::Status status = communication_ == nullptr ? AllocatePlain() : AllocateRegistered();
    if (!status.ok()) return status;
    // On a stream of its own: the group's and the legacy one wait for streams of the program.
    const absl::StatusOr<OwnedStream> stream = Gpu(device_.api()).MakeStream("set memory to 0");
    if (!stream.ok()) return stream.status();
    const auto on = static_cast<CudaStream>(stream->get());
    status = Fill(on);
    return status.ok() ? Await(on, Clock::now() + owner_.queue.timeout()) : status;
  }

  void* data() const override { return reinterpret_cast<void*>(data_); }
  size_t bytes() const override { return bytes_; }

  absl::Status Zero(Stream stream) override {
    const CurrentDevice current(device_);
    if (!current.status().ok()) return current.status();
    owner_.queue.NoteCaller(static_cast<CudaStream>(stream));
    return Fill(static_cast<CudaStream>(stream));
  }

  absl::Status Copy(void* to, const void* from, size_t bytes, Stream stream) override {
    if (bytes == 0) return absl::OkStatus();
    const CurrentDevice current(device_);
    if (!current.status().ok()) return current.status();
    const auto on = static_cast<CudaStream>(stream);
    owner_.queue.NoteCaller(on);
    return CudaStatus(device_.api(), "cuMemcpyDtoDAsync",
                      device_.api().cuMemcpyDtoDAsync(AddressOf(to), AddressOf(from), bytes, on));
  }

 private:
  // Memory of NCCL's is unmapped under what uses it, and that cuMemFree waits is promised nowhere.
  // REQUIRES: the queue's nccl_mutex() is not held.
  void Free() {
    const CurrentDevice current(device_);
    const RelaxedCapture relaxed(device_.api());
    absl::Status freed = AwaitUses();
    if (freed.ok()) freed = Deregister();
    if (freed.ok()) freed = device_.Free(HowToFree(), kIdlePatience);
    if (freed.ok()) return;
    std::fprintf(stderr, "ddp: %zu bytes of GPU memory are left to the end of the process: %s\n",
                 bytes_, std::string(freed.message()).c_str());
  }

  std::function<absl::Status()> HowToFree() const {
    if (communication_ == nullptr) {
      return [&api = device_.api(), data = data_] {
        return CudaStatus(api, "cuMemFree", api.cuMemFree(data));
      };
    }
    return [&api = communication_->api(), data = data()] {
      return NcclStatus(api, "ncclMemFree", api.ncclMemFree(data), nullptr);
    };
  }

  // What the program itself runs with the memory is on streams that it has named in its calls: an
  // optimizer, say, of a step that failed between its update and its end.
  absl::Status AwaitUses() const {
    if (owner_.queue.is_capturing()) {
      return absl::FailedPreconditionError("it goes while a step is being captured");
    }
    const auto deadline = Clock::now() + kIdlePatience;
    absl::Status status = Await(owner_.queue.stream(), deadline);
    for (const CudaStream stream : owner_.queue.callers()) {
      int state = kCudaCaptureStatusNone;
      const CudaResult result = device_.api().cuStreamIsCapturing(stream, &state);
      // What is captured does not run, and what the program has destroyed is its own affair.
      if (result == kCudaErrorInvalidHandle || result == kCudaErrorInvalidContext) continue;
      if (result == kCudaSuccess && state != kCudaCaptureStatusNone) continue;
      status.Update(CudaStatus(device_.api(), "ask a stream that used it", result));
      if (status.ok()) status = Await(stream, deadline);
    }
    return status;
  }

  // Until all that is on `stream` by now is done, or the group has failed.
  absl::Status Await(CudaStream stream, Clock::time_point deadline) const {
    const CudaApi& api = device_.api();
    CudaResult result = api.cuEventRecord(reached_, stream);
    while (result == kCudaSuccess && (result = api.cuEventQuery(reached_)) == kCudaErrorNotReady) {
      if (!owner_.may_free()) return owner_.queue.error();
      if (Clock::now() >= deadline) {
        return absl::DeadlineExceededError("what is on a stream with it has not ended");
      }
      result = kCudaSuccess;
      std::this_thread::sleep_for(kLook);
    }
    return CudaStatus(api, "wait for what is on a stream with it", result);
  }

  absl::Status Fill(CudaStream stream) const {
    return CudaStatus(device_.api(), "cuMemsetD8Async",
                      device_.api().cuMemsetD8Async(data_, 0, bytes_, stream));
  }

  absl::Status Deregister() {
    if (handle_ == nullptr) return absl::OkStatus();
    const std::unique_lock nccl = owner_.queue.TryLockNccl(kIdlePatience);
    if (!nccl.owns_lock()) return absl::DeadlineExceededError("a call of NCCL has not returned");
    // As in LaunchQueue::CallNccl(): a group that has failed is being aborted.
    if (!owner_.may_free()) return owner_.queue.error();
    // After an orderly end the registration has gone with NCCL's communicator.
    if (!communication_->is_open()) return absl::OkStatus();
    communication_->api().ncclCommDeregister(communication_->get(), handle_);
    return absl::OkStatus();
  }

  absl::Status AllocatePlain() {
    return CudaStatus(device_.api(), absl::StrCat("cuMemAlloc of ", bytes_, " bytes").c_str(),
                      device_.api().cuMemAlloc(&data_, bytes_));
  }

  absl::Status AllocateRegistered() {
    void* memory = nullptr;
    const NcclApi& api = communication_->api();
    NcclResult result = api.ncclMemAlloc(&memory, bytes_);
    if (result != kNcclSuccess) {
      return NcclStatus(api, absl::StrCat("ncclMemAlloc of ", bytes_, " bytes").c_str(), result,
                        nullptr);
    }
    data_ = reinterpret_cast<CudaPointer>(memory);
    const std::lock_guard nccl(owner_.queue.nccl_mutex());
    // The group may have failed meanwhile, and NCCL's communicator be gone.
    if (absl::Status status = owner_.queue.error(); !status.ok()) return status;
    result = api.ncclCommRegister(communication_->get(), memory, bytes_, &handle_);
    return communication_->Explain("ncclCommRegister", result);
  }

  const Device& device_;
  NcclCommunication* const communication_;  // null: plain memory
  const size_t bytes_;
  const BufferOwner owner_;
  CudaEvent reached_ = nullptr;  // asked by Await()
  CudaPointer data_ = 0;
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
