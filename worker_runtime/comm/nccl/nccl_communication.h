// A communicator of NCCL and the order in which it may be used.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_COMMUNICATION_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_COMMUNICATION_H_

#include <atomic>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/comm/op.h"
#include "worker_runtime/gpu/nccl_api.h"

namespace ddp::internal {

// Owns a non-blocking ncclComm. NCCL's communicators are not safe for several threads: the owner
// sees to it that one call is made at a time.
class NcclCommunication {
 public:
  // Asked again and again during a wait; an error ends it.
  using Interrupted = std::function<absl::Status()>;

  // Collective over `world_size` processes that have `id`. REQUIRES: the rank's device is current;
  // `nccl` outlives this. Errors: DeadlineExceeded; NCCL's; what `interrupted` returned. What was
  // begun is aborted then.
  static absl::StatusOr<std::unique_ptr<NcclCommunication>> Join(const LoadedNccl& nccl,
                                                                 const NcclUniqueId& id, int rank,
                                                                 int world_size,
                                                                 Clock::time_point deadline,
                                                                 const Interrupted& interrupted);
  // REQUIRES: Finalize() succeeded or Abort() was called.
  ~NcclCommunication() = default;
  NcclCommunication(const NcclCommunication&) = delete;
  NcclCommunication& operator=(const NcclCommunication&) = delete;

  const NcclApi& api() const { return nccl_.api; }
  NcclComm get() const { return comm_; }

  // Puts `op` on `stream`. kNcclInProgress: it will be there once Progress() is Ok, and nothing may
  // be done with the stream or the communicator before that.
  NcclResult Enqueue(const Op& op, CudaStream stream);
  // How the last call goes on: Ok, kNcclInProgress, or the error, which an operation on the device
  // or another rank may have caused.
  NcclResult Progress();
  absl::Status Explain(const char* call, NcclResult result) const;

  // Ends in order: flushes, waits for the other ranks, frees. Aborts after `deadline`, or once
  // `is_interrupted`.
  absl::Status Finalize(Clock::time_point deadline, const std::atomic<bool>& is_interrupted);
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
  NcclComm comm_ = nullptr;
  bool is_joined_ = false;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_COMMUNICATION_H_
