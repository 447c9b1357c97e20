// Memory: what the device can reach is registered here, and every copy is checked against it.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/gpu_double/driver.h"
#include "tests/gpu_double/log.h"
#include "tests/gpu_double/settings.h"

namespace ddprun::gpu_double {
namespace {

// A driver gives out memory as it was left, which is seldom zero. Here its first pages are not:
// to touch all of a large allocation would take the machine's own.
constexpr int kLeftByte = 0xa5;
constexpr size_t kMostLeftBytes = size_t{64} << 10;

size_t RoundToPage(size_t bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

// Whether [address, address + bytes) lies in pinned host memory.
bool IsPinned(Driver& driver, const void* address, size_t bytes) {
  char* const begin = static_cast<char*>(const_cast<void*>(address));
  auto after = driver.pinned.upper_bound(begin);
  if (after == driver.pinned.begin()) return false;
  --after;
  const size_t offset = static_cast<size_t>(begin - after->first);
  return offset <= after->second && bytes <= after->second - offset;
}

// The start of every asynchronous copy: the thread's context, the stream, the device's range.
struct Copy {
  explicit Copy(CudaStream handle) : driver(Driver::Get()) {
    result = CheckContext();
    if (result != kCudaSuccess) return;
    lock = std::unique_lock<std::mutex>(driver.mutex);
    stream = FindStream(driver, handle, &result);
  }
  View Device(CudaPointer address, size_t bytes) {
    View view = FindMemory(driver, address, bytes);
    if (view.host == nullptr && result == kCudaSuccess) result = kCudaErrorInvalidValue;
    return view;
  }
  CudaResult Push(const char* what, size_t bytes, Queue::Op op) {
    if (result != kCudaSuccess) return result;
    Log("stream=%d %s bytes=%zu", stream->id, what, bytes);
    return SubmitLocked(*stream, std::move(op));
  }

  Driver& driver;
  CudaResult result;
  std::unique_lock<std::mutex> lock;
  std::shared_ptr<Stream> stream;
};

}  // namespace

Allocation::Allocation(int device, size_t bytes)
    : device(device), bytes(bytes), mapped_bytes(RoundToPage(bytes)) {
  const int fd = memfd_create("gpu-double", MFD_CLOEXEC);
  if (fd < 0) return;
  const bool is_sized = ftruncate(fd, static_cast<off_t>(mapped_bytes)) == 0;
  void* seen = is_sized ? mmap(nullptr, mapped_bytes, PROT_NONE, MAP_SHARED, fd, 0) : MAP_FAILED;
  void* own = seen != MAP_FAILED
                  ? mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                  : MAP_FAILED;
  close(fd);
  if (own == MAP_FAILED) {
    if (seen != MAP_FAILED) munmap(seen, mapped_bytes);
    return;
  }
  address = reinterpret_cast<CudaPointer>(seen);
  host = static_cast<char*>(own);
  std::memset(host, kLeftByte, std::min(mapped_bytes, kMostLeftBytes));
}

Allocation::~Allocation() {
  if (host == nullptr) return;
  munmap(host, mapped_bytes);
  munmap(reinterpret_cast<void*>(address), mapped_bytes);
}

View FindMemory(Driver& driver, CudaPointer address, size_t bytes) {
  auto after = driver.memory.upper_bound(address);
  if (after != driver.memory.begin()) {
    const std::shared_ptr<Allocation>& allocation = std::prev(after)->second;
    const size_t offset = address - allocation->address;
    if (offset <= allocation->bytes && bytes <= allocation->bytes - offset) {
      return {allocation->host + offset, allocation};
    }
  }
  char* const host = reinterpret_cast<char*>(address);
  if (host != nullptr && IsPinned(driver, host, bytes)) return {host, nullptr};
  return {};
}

View FindMemory(CudaPointer address, size_t bytes) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  return FindMemory(driver, address, bytes);
}

CudaResult cuMemAlloc_v2(CudaPointer* pointer, size_t bytes) {
  int device = 0;
  const CudaResult context = CurrentDevice(&device);
  if (context != kCudaSuccess) return context;
  if (pointer == nullptr || bytes == 0) return kCudaErrorInvalidValue;
  size_t total = 0;
  const CudaResult sized = cuDeviceTotalMem_v2(&total, device);
  if (sized != kCudaSuccess) return sized;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  const CudaResult allowed = CheckCaptureAllows(driver);
  if (allowed != kCudaSuccess) return allowed;
  size_t& used = driver.used_bytes[static_cast<size_t>(device)];
  if (used > total || bytes > total - used) return kCudaErrorOutOfMemory;
  const auto allocation = std::make_shared<Allocation>(device, bytes);
  if (!allocation->is_mapped()) return kCudaErrorOutOfMemory;
  used += bytes;
  driver.memory[allocation->address] = allocation;
  *pointer = allocation->address;
  return kCudaSuccess;
}

CudaResult FreeMemory(CudaPointer pointer, bool waits) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  std::shared_ptr<Allocation> allocation;
  std::vector<std::shared_ptr<Mark>> marks;
  {
    Driver& driver = Driver::Get();
    std::lock_guard<std::mutex> lock(driver.mutex);
    const CudaResult allowed = CheckCaptureAllows(driver);
    if (allowed != kCudaSuccess) return allowed;
    const auto found = driver.memory.find(pointer);
    if (found == driver.memory.end()) return kCudaErrorInvalidValue;
    allocation = found->second;
    driver.used_bytes[static_cast<size_t>(allocation->device)] -= allocation->bytes;
    driver.memory.erase(found);
    Log("device=%d free bytes=%zu", allocation->device, allocation->bytes);
    if (waits) marks = MarkAllStreams(driver, allocation->device);
    // What is on a stream or in a graph holds what it uses.
    if (!waits && allocation.use_count() > 1) {
      std::fprintf(stderr, "gpu double: %zu bytes are freed under what uses them\n",
                   allocation->bytes);
      std::abort();
    }
  }
  for (const auto& mark : marks) mark->Wait();
  return kCudaSuccess;
}

CudaResult cuMemFree_v2(CudaPointer pointer) {
  if (pointer == 0) return CheckContext();
  // As CUDA does, and does not promise: freeing waits for the device, for ever if a collective
  // hangs there.
  return FreeMemory(pointer, /*waits=*/!Faults::Of(-1).eager_free);
}

CudaResult cuMemAllocHost_v2(void** pointer, size_t bytes) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  if (pointer == nullptr || bytes == 0) return kCudaErrorInvalidValue;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  const CudaResult allowed = CheckCaptureAllows(driver);
  if (allowed != kCudaSuccess) return allowed;
  void* memory =
      mmap(nullptr, RoundToPage(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return kCudaErrorOutOfMemory;
  driver.pinned[static_cast<char*>(memory)] = bytes;
  *pointer = memory;
  return kCudaSuccess;
}

CudaResult cuMemFreeHost(void* pointer) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  const CudaResult allowed = CheckCaptureAllows(driver);
  if (allowed != kCudaSuccess) return allowed;
  const auto found = driver.pinned.find(static_cast<char*>(pointer));
  if (found == driver.pinned.end()) return kCudaErrorInvalidValue;
  munmap(pointer, RoundToPage(found->second));
  driver.pinned.erase(found);
  return kCudaSuccess;
}

CudaResult cuMemcpyHtoDAsync_v2(CudaPointer to, const void* from, size_t bytes, CudaStream handle) {
  Copy copy(handle);
  if (copy.result != kCudaSuccess) return copy.result;
  const View target = copy.Device(to, bytes);
  if (copy.result != kCudaSuccess) return copy.result;
  // CUDA has read pageable memory before the call returns; pinned memory is read by the stream.
  if (!IsPinned(copy.driver, from, bytes) && copy.stream->capture == nullptr) {
    std::string staged(static_cast<const char*>(from), bytes);
    return copy.Push("copy host to device", bytes, [target, staged = std::move(staged)] {
      std::memcpy(target.host, staged.data(), staged.size());
    });
  }
  return copy.Push("copy host to device", bytes,
                   [target, from, bytes] { std::memcpy(target.host, from, bytes); });
}

CudaResult cuMemcpyDtoHAsync_v2(void* to, CudaPointer from, size_t bytes, CudaStream handle) {
  std::shared_ptr<Mark> done;
  {
    Copy copy(handle);
    if (copy.result != kCudaSuccess) return copy.result;
    const View source = copy.Device(from, bytes);
    const CudaResult result = copy.Push(
        "copy device to host", bytes, [to, source, bytes] { std::memcpy(to, source.host, bytes); });
    if (result != kCudaSuccess) return result;
    // Into pageable memory CUDA copies before it returns.
    if (!IsPinned(copy.driver, to, bytes) && copy.stream->capture == nullptr) {
      done = copy.stream->queue->PushMark();
    }
  }
  if (done != nullptr) done->Wait();
  return kCudaSuccess;
}

CudaResult cuMemcpyDtoDAsync_v2(CudaPointer to, CudaPointer from, size_t bytes, CudaStream handle) {
  Copy copy(handle);
  if (copy.result != kCudaSuccess) return copy.result;
  const View target = copy.Device(to, bytes);
  const View source = copy.Device(from, bytes);
  return copy.Push("copy device to device", bytes,
                   [target, source, bytes] { std::memmove(target.host, source.host, bytes); });
}

CudaResult cuMemcpyPeerAsync(CudaPointer to, CudaContext to_context, CudaPointer from,
                             CudaContext from_context, size_t bytes, CudaStream handle) {
  const int to_device = DeviceOf(to_context), from_device = DeviceOf(from_context);
  if (to_device < 0 || from_device < 0) return kCudaErrorInvalidContext;
  Copy copy(handle);
  if (copy.result != kCudaSuccess) return copy.result;
  const View target = copy.Device(to, bytes);
  const View source = copy.Device(from, bytes);
  const auto is_on = [](const View& view, int device) {
    return view.allocation != nullptr && view.allocation->device == device;
  };
  if (!is_on(target, to_device) || !is_on(source, from_device)) return kCudaErrorInvalidValue;
  return copy.Push("copy between devices", bytes,
                   [target, source, bytes] { std::memmove(target.host, source.host, bytes); });
}

CudaResult cuMemsetD8Async(CudaPointer to, unsigned char value, size_t bytes, CudaStream handle) {
  Copy copy(handle);
  if (copy.result != kCudaSuccess) return copy.result;
  const View target = copy.Device(to, bytes);
  return copy.Push("set memory", bytes,
                   [target, value, bytes] { std::memset(target.host, value, bytes); });
}

CudaResult cuPointerGetAttribute(void* value, int attribute, CudaPointer pointer) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  const View view = FindMemory(pointer, 1);
  if (value == nullptr || view.host == nullptr) return kCudaErrorInvalidValue;
  if (attribute == kCudaPointerAttributeMemoryType) {
    *static_cast<unsigned*>(value) =
        view.allocation != nullptr ? kCudaMemoryTypeDevice : kCudaMemoryTypeHost;
  } else if (attribute == kCudaPointerAttributeIsManaged) {
    *static_cast<unsigned char*>(value) = 0;
  } else if (attribute == kCudaPointerAttributeDeviceOrdinal) {
    int device = 0;
    if (view.allocation == nullptr) CurrentDevice(&device);
    *static_cast<int*>(value) = view.allocation != nullptr ? view.allocation->device : device;
  } else {
    return kCudaErrorInvalidValue;
  }
  return kCudaSuccess;
}

}  // namespace ddprun::gpu_double
