// How a group that has a communicator for host memory gets one for GPUs.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_FORM_NCCL_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_FORM_NCCL_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ddp/store.h"
#include "worker_runtime/comm/failure_board.h"
#include "worker_runtime/comm/group_communicator.h"
#include "worker_runtime/comm/nccl/nccl_communicator.h"
#include "worker_runtime/comm/plan.h"
#include "worker_runtime/comm/tcp/link_key.h"
#include "worker_runtime/gpu/device.h"

namespace ddp::internal {

// What this rank's GPU can do, looked up without a word to the others; `device` gets the GPU if it
// can be used. Opens CUDA, and NCCL if `needs_nccl`; `has_key`: the round has a key.
GpuCapability ProbeGpu(int local_rank, bool needs_nccl, bool has_key,
                       std::unique_ptr<Device>* device);

struct NcclMember {
  std::chrono::milliseconds timeout{0};
  Clock::time_point deadline;  // for forming the group
  FailureBoard::ConnectStore connect_store;
  GroupLabel label{};                    // FlightRecorder's
  std::shared_ptr<const LinkKey> key{};  // the round's, where the plan has NCCL encrypt
};

// Collective over the ranks of `host`, after all have agreed on `plan`, which is on GPUs. `store`
// is the key space of this group alone; null in a group of one without a launcher. DeadlineExceeded
// names the ranks that did not come. After an error a thread of the process may be inside NCCL for
// ever: the program should end.
absl::StatusOr<std::unique_ptr<NcclCommunicator>> FormNccl(Store* store, const Plan& plan,
                                                           const NcclMember& member,
                                                           std::unique_ptr<Device> device,
                                                           std::unique_ptr<HostCommunicator> host);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_FORM_NCCL_H_
