// A communicator of NCCL and the order in which it may be used.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_COMMUNICATION_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_COMMUNICATION_H_

#include <atomic>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/comm/op.h"
#include "worker_runtime/gpu/nccl_api.h"

namespace ddp::internal {

// Owns an ncclComm, a blocking one, as PyTorch's are. NCCL's communicators are not safe for several
// threads: the owner sees to it that one call is made at a time; Abort() alone may come beside it.
class NcclCommunication {
 public:
  // Collective over `world_size` processes that have `id`: waits for them, for ever if one does not
  // come. REQUIRES: the rank's device is current; `nccl` outlives this. Errors: NCCL's.
  static absl::StatusOr<std::unique_ptr<NcclCommunication>> Join(const LoadedNccl& nccl,
                                                                 const NcclUniqueId& id, int rank,
                                                                 int world_size);
  // REQUIRES: Finalize() succeeded or Abort() was called.
  ~NcclCommunication() = default;
  NcclCommunication(const NcclCommunication&) = delete;
  NcclCommunication& operator=(const NcclCommunication&) = delete;

  const NcclApi& api() const { return nccl_.api; }
  NcclComm get() const { return comm_; }
  // Neither finalised nor aborted: what the calls below and get() REQUIRE. Beside an Abort() it
  // proves nothing: LaunchQueue::error() under its nccl_mutex() does.
  bool is_open() const { return is_open_; }

  // Puts `op` on `stream`. At the first use of a peer it waits until that calls as well; an Abort()
  // on another thread ends the wait.
  NcclResult Enqueue(const Op& op, CudaStream stream);
  // What an operation on the device, or another rank, has caused.
  NcclResult AsyncError();
  absl::Status Explain(const char* call, NcclResult result) const;

  // Ends in order: flushes, waits for the other ranks, for ever if one does not come, and frees.
  absl::Status Finalize();
  // Ends what is under way on the device and frees. May hang, as NCCL has shown; then nothing of
  // NCCL can be used any more in this process.
  void Abort();

 private:
  NcclCommunication(const LoadedNccl& nccl, int rank, int world_size)
      : nccl_(nccl), rank_(rank), world_size_(world_size) {}
  NcclResult PassParts(const Op& op, CudaStream stream);
  NcclResult ReducePieces(const Op& op, CudaStream stream);

  const LoadedNccl& nccl_;
  const int rank_;
  const int world_size_;
  NcclComm comm_ = nullptr;  // Join() sets it
  std::atomic<bool> is_open_ = false;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_COMMUNICATION_H_
