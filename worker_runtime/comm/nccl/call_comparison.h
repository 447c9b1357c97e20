// Finds ranks that call different collectives where NCCL completes them all the same.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_CALL_COMPARISON_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_CALL_COMPARISON_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/base/fnv1a.h"
#include "worker_runtime/comm/op.h"
#include "worker_runtime/gpu/device.h"

namespace ddp::internal {

// NCCL moves bytes and looks at nothing: an all-reduce of float32 on one rank and of int32 on
// another, or a sum here and an average there, ends with garbage and without an error. (Ranks that
// wait for each other in different operations are found by the failure board.) So each rank keeps a
// hash of all its calls, and behind the first one from call 8, 64, 512, ... on that is not part of
// a graph the ranks gather those of all, on the communicator's stream: eight bytes a rank, some
// twenty times in the life of a job.
//
// The communicator calls this under its mutex, but for the steps on the stream.
class CallComparison {
 public:
  // REQUIRES: the device is current, and outlives this. Errors: the driver's.
  static absl::StatusOr<std::unique_ptr<CallComparison>> Create(const Device& device,
                                                                int world_size);
  CallComparison(const CallComparison&) = delete;
  CallComparison& operator=(const CallComparison&) = delete;
  // Hands over the memory, which is otherwise left to the end of the process.
  void Release(Device::Memory& memory);

  // Takes the rank's next call; true if the ranks are to be compared behind it, which is the same
  // on all of them.
  bool Add(const Op& op, bool is_captured);
  // Rewind() takes back what was added since Mark().
  void Mark() { calls_at_mark_ = calls_; }
  void Rewind() { calls_ = calls_at_mark_; }

  // The comparison behind call `sequence`: Upload(), gather(), Download() on one stream. The errors
  // are the driver's.
  absl::Status Upload(uint64_t sequence, CudaStream stream) const;
  Op gather() const;
  absl::Status Download(CudaStream stream) const;
  // DataLoss naming the ranks that called something else. REQUIRES: the device has done it.
  absl::Status Judge(uint64_t sequence);

 private:
  CallComparison(const Device& device, int world_size) : device_(device), world_size_(world_size) {}

  const Device& device_;
  const int world_size_;
  // Hashes by rank, then, on the host, this rank's own, one for each comparison of a job.
  uint64_t* host_ = nullptr;
  CudaPointer gathered_ = 0;  // by rank, then this rank's own
  ddprun::Fnv1a calls_;
  ddprun::Fnv1a calls_at_mark_;
  uint64_t next_ = 8;    // the call from which on the ranks are compared again
  uint64_t newest_ = 0;  // the last call behind which there is a comparison
  uint64_t alike_ = 0;   // up to here all ranks made the same calls
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_CALL_COMPARISON_H_
