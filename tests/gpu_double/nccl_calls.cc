// NCCL's functions that are about a communicator as a whole.
#include <cstdio>
#include <utility>

#include "tests/gpu_double/log.h"
#include "tests/gpu_double/nccl_comm.h"
#include "tests/gpu_double/nccl_encryption.h"

namespace ddprun::gpu_double {
namespace {

// The text of the thread's newest failed call.
thread_local std::string last_error;
// What ncclGetLastError handed out.
thread_local std::string shown_error;

// The communicator of the handle leaves the registry; operations in streams may still hold it.
void Forget(NcclComm handle) {
  Comms& comms = Comms::Get();
  std::lock_guard<std::mutex> lock(comms.mutex);
  const auto found = comms.live.find(handle);
  if (found == comms.live.end()) return;
  std::lock_guard<std::mutex> comm_lock(found->second->mutex);
  comms.lost_registrations += static_cast<int>(found->second->registrations.size());
  comms.live.erase(found);
}

// How a call that waited for the other ranks ends.
NcclResult Ended(Comm& comm) {
  if (comm.must_stop()) return Refuse(kNcclInternalError, "aborted");
  const NcclResult error = comm.AsyncError();
  return error == kNcclSuccess ? error : Refuse(error, comm.ErrorText());
}

// What an operation does on its way out counts as running.
void AwaitRunning(Comm& comm) { std::lock_guard<std::mutex> lock(comm.running); }

NcclResult CheckConfig(const NcclConfig* config) {
  if (config == nullptr) return kNcclSuccess;
  if (config->magic != NcclConfig().magic) {
    return Refuse(kNcclInvalidArgument, "ncclConfig_t was not initialised");
  }
  if (config->size < sizeof(NcclConfig) || config->version < NcclConfig().version) {
    return Refuse(kNcclInvalidArgument, "ncclConfig_t is shorter than any that the double knows");
  }
  const bool is_known = config->blocking == NcclConfig::kUndefined || config->blocking == 1;
  return is_known ? kNcclSuccess
                  : Refuse(kNcclInvalidArgument, "the double knows blocking communicators alone");
}

}  // namespace

NcclResult Refuse(NcclResult result, const std::string& text) {
  last_error = text;
  return result;
}

std::shared_ptr<Comm> FindComm(NcclComm handle) {
  Comms& comms = Comms::Get();
  std::lock_guard<std::mutex> lock(comms.mutex);
  const auto found = comms.live.find(handle);
  if (found != comms.live.end()) return found->second;
  last_error = "no such communicator, or it was destroyed";
  return nullptr;
}

NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  if (id == nullptr) return Refuse(kNcclInvalidArgument, "id is null");
  NoteNetworking();
  MakeUniqueId(id);
  return kNcclSuccess;
}

const char* ncclGetErrorString(NcclResult result) {
  switch (result) {
    case kNcclSuccess:
      return "no error";
    case kNcclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case kNcclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case kNcclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case kNcclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case kNcclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case kNcclRemoteError:
      return "remote process exited or there was a network error";
    case kNcclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(NcclComm handle) {
  const std::shared_ptr<Comm> comm = handle != nullptr ? FindComm(handle) : nullptr;
  const std::string text = comm != nullptr ? comm->ErrorText() : "";
  shown_error = text.empty() ? last_error : text;
  return shown_error.c_str();
}

NcclResult ncclCommInitRankConfig(NcclComm* handle, int world_size, NcclUniqueId id, int rank,
                                  NcclConfig* config) {
  if (handle == nullptr) return Refuse(kNcclInvalidArgument, "comm is null");
  if (world_size < 1 || world_size > kMaxRanks || rank < 0 || rank >= world_size) {
    return Refuse(kNcclInvalidArgument, "invalid rank " + std::to_string(rank) + " of " +
                                            std::to_string(world_size) + " (the double: at most " +
                                            std::to_string(kMaxRanks) + ")");
  }
  const NcclResult checked = CheckConfig(config);
  if (checked != kNcclSuccess) return checked;
  int device = 0;
  const CudaResult context = CurrentDevice(&device);
  if (context != kCudaSuccess) {
    return Refuse(kNcclUnhandledCudaError,
                  "no current context: CUDA error " + std::to_string(context));
  }
  NoteNetworking();
  const auto comm = std::make_shared<Comm>(world_size, rank, device);
  *handle = ToHandle<NcclComm>(comm->id);
  {
    Comms& comms = Comms::Get();
    std::lock_guard<std::mutex> lock(comms.mutex);
    comms.live[*handle] = comm;
  }
  Log("nccl comm=%d rank=%d init world_size=%d device=%d", comm->id, rank, world_size, device);
  comm->Join(id);
  const NcclResult result = Ended(*comm);
  // As the real one: what failed is gone. What was aborted meanwhile went with that.
  if (result != kNcclSuccess && !comm->must_stop()) Forget(std::exchange(*handle, nullptr));
  return result;
}

NcclResult ncclCommGetAsyncError(NcclComm handle, NcclResult* error) {
  const std::shared_ptr<Comm> comm = FindComm(handle);
  if (comm == nullptr || error == nullptr) return kNcclInvalidArgument;
  *error = comm->AsyncError();
  return kNcclSuccess;
}

NcclResult ncclCommFinalize(NcclComm handle) {
  const std::shared_ptr<Comm> comm = FindComm(handle);
  if (comm == nullptr) return kNcclInvalidArgument;
  const NcclResult ready = comm->CheckReady();
  if (ready != kNcclSuccess) return ready;
  Log("nccl comm=%d rank=%d finalize", comm->id, comm->rank);
  if (comm->faults.finalize_hangs) comm->Stall();
  if (!comm->AwaitDrained()) return Ended(*comm);
  comm->AwaitUnheld();
  comm->group->seat(comm->rank).has_finalized.store(1);
  comm->group->Ring();
  const bool have_all = comm->Await([&comm] {
    for (int peer = 0; peer < comm->world_size; ++peer) {
      if (comm->group->seat(peer).has_finalized.load() == 0) return false;
    }
    return true;
  });
  if (!have_all) return Ended(*comm);
  {
    std::lock_guard<std::mutex> lock(comm->mutex);
    comm->is_finalized = true;
  }
  Log("nccl comm=%d rank=%d finalized", comm->id, comm->rank);
  return kNcclSuccess;
}

NcclResult ncclCommDestroy(NcclComm handle) {
  const std::shared_ptr<Comm> comm = FindComm(handle);
  if (comm == nullptr) return kNcclInvalidArgument;
  Log("nccl comm=%d rank=%d destroy", comm->id, comm->rank);
  comm->AwaitDrained();
  comm->AwaitUnheld();
  Forget(handle);
  return kNcclSuccess;
}

NcclResult ncclCommAbort(NcclComm handle) {
  const std::shared_ptr<Comm> comm = FindComm(handle);
  if (comm == nullptr) return kNcclInvalidArgument;
  Log("nccl comm=%d rank=%d abort", comm->id, comm->rank);
  if (comm->faults.abort_hangs) Mark().Wait();
  comm->Stop();
  AwaitRunning(*comm);
  comm->AwaitUnheld();
  Forget(handle);
  Log("nccl comm=%d rank=%d aborted", comm->id, comm->rank);
  return kNcclSuccess;
}

}  // namespace ddprun::gpu_double
