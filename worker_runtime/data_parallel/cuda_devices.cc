// Devices that are GPUs: copies between them by the driver, sums by a kernel on device 0, all in
// the order of one stream for each.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ddp/gpu.h"
#include "worker_runtime/data_parallel/replica_device.h"
#include "worker_runtime/gpu/device.h"
#include "worker_runtime/gpu/gpu_runtime.h"
#include "worker_runtime/gpu/sums.h"

namespace ddp::internal {
namespace {

// Parts are summed a piece at a time, so that device 0 needs little room for what others send it.
constexpr size_t kPieceBytes = size_t{4} << 20;

class CudaReplicaDevice final : public ReplicaDevice {
 public:
  // `first` is device 0, null for itself.
  CudaReplicaDevice(std::unique_ptr<Device> device, const Device* first)
      : device_(std::move(device)), first_(first), cuda_(device_->api()) {}

  ~CudaReplicaDevice() override {
    const CurrentDevice current(*device_);
    if (stream_ != nullptr) Wait().IgnoreError();
    buffers_.clear();
    pieces_.reset();
    sums_.reset();
    stream_.reset();
  }

  const Device& gpu() const { return *device_; }

  absl::Status Enter() override {
    if (absl::Status status = device_->MakeCurrent(); !status.ok()) return status;
    absl::StatusOr<OwnedStream> stream = Gpu(cuda_).MakeStream("DataParallel's stream");
    if (!stream.ok()) return stream.status();
    stream_ = *std::move(stream);
    // Each for what it copies from the other.
    if (first_ != nullptr) {
      device_->ReachDirectly(*first_);
      first_->ReachDirectly(*device_);
      return absl::OkStatus();
    }
    absl::StatusOr<std::unique_ptr<Sums>> sums = Sums::Load(cuda_);
    if (!sums.ok()) return sums.status();
    sums_ = *std::move(sums);
    return absl::OkStatus();
  }

  absl::StatusOr<void*> Allocate(size_t bytes) override {
    absl::StatusOr<DeviceMemory> memory = Gpu(cuda_).Allocate("a replica", bytes);
    if (!memory.ok()) return memory.status();
    void* const data = buffers_.emplace_back(*std::move(memory)).get();
    absl::Status status = Zero(data, bytes);
    if (status.ok()) status = Wait();
    if (!status.ok()) return status;
    return data;
  }

  absl::StatusOr<bool> Owns(const void* memory) const override {
    unsigned type = 0;
    // The driver knows nothing of the host's ordinary memory.
    CudaResult result =
        cuda_.cuPointerGetAttribute(&type, kCudaPointerAttributeMemoryType, AddressOf(memory));
    if (result == kCudaErrorInvalidValue) return false;
    if (result == kCudaSuccess && type != kCudaMemoryTypeDevice) return false;
    int ordinal = 0;
    if (result == kCudaSuccess) {
      result = cuda_.cuPointerGetAttribute(&ordinal, kCudaPointerAttributeDeviceOrdinal,
                                           AddressOf(memory));
    }
    if (absl::Status status = CudaStatus(cuda_, "cuPointerGetAttribute", result); !status.ok()) {
      return status;
    }
    if (ordinal == device_->ordinal()) return true;
    return absl::InvalidArgumentError(
        absl::StrCat("it is memory of GPU ", ordinal, " and not of GPU ", device_->ordinal()));
  }

  absl::Status Zero(void* memory, size_t bytes) override {
    if (bytes == 0) return absl::OkStatus();
    return CudaStatus(cuda_, "cuMemsetD8Async",
                      cuda_.cuMemsetD8Async(AddressOf(memory), 0, bytes, own_stream()));
  }

  absl::Status Copy(void* to, Place from, size_t bytes) override {
    if (bytes == 0) return absl::OkStatus();
    if (from.device == nullptr) {
      return CudaStatus(cuda_, "cuMemcpyHtoDAsync",
                        cuda_.cuMemcpyHtoDAsync(AddressOf(to), from.data, bytes, own_stream()));
    }
    if (from.device == this) {
      return CudaStatus(
          cuda_, "cuMemcpyDtoDAsync",
          cuda_.cuMemcpyDtoDAsync(AddressOf(to), AddressOf(from.data), bytes, own_stream()));
    }
    const Device& source = static_cast<const CudaReplicaDevice*>(from.device)->gpu();
    return CudaStatus(
        cuda_, "cuMemcpyPeerAsync",
        cuda_.cuMemcpyPeerAsync(AddressOf(to), device_->context(), AddressOf(from.data),
                                source.context(), bytes, own_stream()));
  }

  absl::Status Add(DType dtype, void* sum, std::span<const Place> parts, size_t count) override {
    const size_t size = SizeOf(dtype);
    const size_t stride = std::min(count, kPieceBytes / size);
    if (absl::Status status = MakeRoom(parts.size() * stride * size); !status.ok()) return status;
    char* const pieces = static_cast<char*>(pieces_.get());
    for (size_t begin = 0; begin < count; begin += stride) {
      const size_t length = std::min(stride, count - begin);
      for (size_t i = 0; i < parts.size(); ++i) {
        const Place piece{parts[i].device, static_cast<const char*>(parts[i].data) + begin * size};
        absl::Status status = Copy(pieces + i * stride * size, piece, length * size);
        if (!status.ok()) return status;
      }
      absl::Status status = sums_->Add(
          dtype, static_cast<char*>(sum) + begin * size, pieces, static_cast<int64_t>(parts.size()),
          static_cast<int64_t>(stride), static_cast<int64_t>(length), own_stream());
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Wait() override {
    return CudaStatus(cuda_, "cuStreamSynchronize", cuda_.cuStreamSynchronize(own_stream()));
  }

  Stream stream() const override { return stream_.get(); }

 private:
  CudaStream own_stream() const { return static_cast<CudaStream>(stream_.get()); }

  // For the parts that are being summed.
  absl::Status MakeRoom(size_t bytes) {
    if (bytes <= piece_bytes_) return absl::OkStatus();
    // An earlier sum may still use them.
    if (absl::Status status = Wait(); !status.ok()) return status;
    piece_bytes_ = 0;
    pieces_.reset();
    absl::StatusOr<DeviceMemory> memory = Gpu(cuda_).Allocate("the parts of a sum", bytes);
    if (!memory.ok()) return memory.status();
    pieces_ = *std::move(memory);
    piece_bytes_ = bytes;
    return absl::OkStatus();
  }

  const std::unique_ptr<Device> device_;
  const Device* const first_;
  const CudaApi& cuda_;
  OwnedStream stream_;
  std::unique_ptr<Sums> sums_;  // on device 0
  std::vector<DeviceMemory> buffers_;
  DeviceMemory pieces_;  // one behind the other
  size_t piece_bytes_ = 0;
};

}  // namespace

absl::StatusOr<ReplicaDevices> OpenCudaDevices(int count) {
  const absl::StatusOr<LoadedCuda>& cuda = Cuda();
  if (!cuda.ok()) return cuda.status();
  const absl::StatusOr<int> found = CountGpus(cuda->api);
  if (!found.ok()) return found.status();
  if (*found < count) {
    return absl::FailedPreconditionError(
        absl::StrCat("DataParallel with ", count, " replicas needs as many GPUs, but CUDA shows ",
                     *found, " (start it with fewer replicas, or check CUDA_VISIBLE_DEVICES)"));
  }
  ReplicaDevices devices;
  const Device* first = nullptr;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    absl::StatusOr<std::unique_ptr<Device>> device = Device::Open(cuda->api, ordinal);
    if (!device.ok()) return device.status();
    const Device* const opened = device->get();
    devices.push_back(std::make_unique<CudaReplicaDevice>(*std::move(device), first));
    if (first == nullptr) first = opened;
  }
  return devices;
}

}  // namespace ddp::internal
