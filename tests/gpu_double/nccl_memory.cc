// NCCL's memory and its registration.
#include "tests/gpu_double/log.h"
#include "tests/gpu_double/nccl_comm.h"

namespace ddprun::gpu_double {
namespace {

// As the real one, which allocates in the granularity of virtual memory.
constexpr size_t kGranularity = 2 << 20;

CudaPointer AddressOf(const void* pointer) { return reinterpret_cast<CudaPointer>(pointer); }

// Whether a live communicator has registered something in [address, address + bytes).
bool IsRegisteredAnywhere(const Comms& comms, CudaPointer address, size_t bytes) {
  for (const auto& [handle, comm] : comms.live) {
    std::lock_guard<std::mutex> lock(comm->mutex);
    for (const auto& [registered, range] : comm->registrations) {
      if (range.address < address + bytes && address < range.address + range.bytes) return true;
    }
  }
  return false;
}

}  // namespace

NcclResult ncclMemAlloc(void** pointer, size_t bytes) {
  if (pointer == nullptr || bytes == 0) {
    return Refuse(kNcclInvalidArgument, "ncclMemAlloc: null or no bytes");
  }
  if (Faults::Of(-1).no_memalloc) {
    return Refuse(kNcclUnhandledCudaError, "injected: no_memalloc");
  }
  const size_t rounded = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  CudaPointer address = 0;
  const CudaResult result = cuMemAlloc_v2(&address, rounded);
  if (result != kCudaSuccess) {
    return Refuse(kNcclUnhandledCudaError, "ncclMemAlloc: CUDA error " + std::to_string(result));
  }
  *pointer = reinterpret_cast<void*>(address);
  Comms& comms = Comms::Get();
  std::lock_guard<std::mutex> lock(comms.mutex);
  comms.memory[*pointer] = rounded;
  Log("nccl memory allocate bytes=%zu", rounded);
  return kNcclSuccess;
}

NcclResult ncclMemFree(void* pointer) {
  if (pointer == nullptr) return kNcclSuccess;
  {
    Comms& comms = Comms::Get();
    std::lock_guard<std::mutex> lock(comms.mutex);
    const auto found = comms.memory.find(pointer);
    if (found == comms.memory.end()) {
      return Refuse(kNcclInvalidArgument, "ncclMemFree: not from ncclMemAlloc, or freed before");
    }
    if (IsRegisteredAnywhere(comms, AddressOf(pointer), found->second)) {
      return Refuse(kNcclInvalidUsage, "ncclMemFree: still registered");
    }
    comms.memory.erase(found);
  }
  Log("nccl memory free");
  // The real one unmaps it, which does not wait for the device.
  return FreeMemory(AddressOf(pointer), /*waits=*/false) == kCudaSuccess
             ? kNcclSuccess
             : Refuse(kNcclUnhandledCudaError, "ncclMemFree: the driver refused");
}

NcclResult ncclCommRegister(NcclComm handle, void* buffer, size_t bytes, void** registered) {
  const std::shared_ptr<Comm> comm = FindComm(handle);
  if (comm == nullptr) return kNcclInvalidArgument;
  const NcclResult ready = comm->CheckReady();
  if (ready != kNcclSuccess) return ready;
  if (buffer == nullptr || registered == nullptr || bytes == 0 ||
      FindMemory(AddressOf(buffer), bytes).allocation == nullptr) {
    return Refuse(kNcclInvalidArgument, "ncclCommRegister: not memory of a device");
  }
  Driver& driver = Driver::Get();
  std::scoped_lock lock(driver.mutex, comm->mutex);
  *registered = ToHandle<void*>(driver.next_id++);
  comm->registrations[*registered] = {AddressOf(buffer), bytes};
  Log("nccl comm=%d rank=%d register bytes=%zu", comm->id, comm->rank, bytes);
  return kNcclSuccess;
}

NcclResult ncclCommDeregister(NcclComm handle, void* registered) {
  const std::shared_ptr<Comm> comm = FindComm(handle);
  if (comm == nullptr) return kNcclInvalidArgument;
  std::lock_guard<std::mutex> lock(comm->mutex);
  if (comm->registrations.erase(registered) == 0) {
    return Refuse(kNcclInvalidArgument, "ncclCommDeregister: not registered, or no longer");
  }
  Log("nccl comm=%d rank=%d deregister", comm->id, comm->rank);
  return kNcclSuccess;
}

}  // namespace ddprun::gpu_double
