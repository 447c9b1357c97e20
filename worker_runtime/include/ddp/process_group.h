// This process's place among the ranks of a job.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_PROCESS_GROUP_H_
#define DDPRUN_WORKER_RUNTIME_DDP_PROCESS_GROUP_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "ddp/store.h"

namespace ddp {

// kAuto: `nccl` on GPUs; for host memory `local` for world size 1, `shm` where all ranks share a
// host, `tcp` otherwise (with shm between the ranks of one host). kTcp uses tcp between all ranks,
// also on one host. kNccl is for GPUs alone.
enum class Backend { kAuto, kShm, kTcp, kNccl };

// What the gradients live on. kCpu: CUDA is never opened. kCuda: every rank has a GPU of its own,
// or the group is not formed. kAuto: GPUs where every rank has one of its own and what it needs,
// the CPU otherwise; the same on all ranks. Slices (MIG) of one GPU count as that GPU, which ranks
// may share from NCCL 2.30.3 on where all set NCCL_MULTI_RANK_GPU_ENABLE=1.
enum class DeviceChoice { kCpu, kCuda, kAuto };

// How much a group looks for mistakes of the program beyond those it meets anyway, by the name of
// PyTorch's level. kDetail: on GPUs the ranks tell each other, over host memory, which operation
// they call before it is launched, and a call waits for all of them. NCCL does not look: it
// completes a sum here and an average there, with garbage. What a StepGraph captures is not
// compared so, as StepGraph compares graphs; a replay is, as one call. Operations in host memory
// are compared at every level.
enum class DebugLevel { kOff, kDetail };

struct ProcessGroupOptions {
  Backend backend = Backend::kAuto;
  // Default timeout of every operation; PyTorch's is 30 minutes for CPU groups.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  DeviceChoice device = DeviceChoice::kCpu;
  // TORCH_DISTRIBUTED_DEBUG=DETAIL in the environment is kDetail, too. What one rank asks for holds
  // for all.
  DebugLevel debug_level = DebugLevel::kOff;
  // For New(): which rank of the launcher's job each rank of the group is. Empty: not known.
  std::vector<int> job_ranks = {};
};

// Made from the environment that ddprun or torchrun gives a worker: RANK, WORLD_SIZE, LOCAL_RANK,
// LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RESTART_COUNT, DDPRUN_ROUND. Without
// RANK it is a group of one, so that a program also runs without a launcher. Where the group fails
// because a rank has left, the file that TORCHELASTIC_ERROR_FILE names says which one, so that the
// launcher does not take this process's end for the cause.
class ProcessGroup {
 public:
  // Errors: InvalidArgument naming the variable and its value; DeadlineExceeded naming the ranks
  // that did not come; FailedPrecondition when a backend was asked for that cannot work here. On
  // GPUs NCCL's start has no end where a rank does not come: after an error a thread of the process
  // may be in it for ever, so the program should end.
  // Collective: all ranks make as many groups as each other, one after the other ended.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> FromEnv(const ProcessGroupOptions& options);

  // A group of any `world_size` processes that reach one store, as torch.distributed's
  // init_process_group(store=...). Collective over them. `store` is their key space: groups that
  // are formed at the same time have one each (a PrefixStore), groups one after the other, of the
  // same size, may share it. The group has a connection of its own and keeps no hold of `store`.
  // local_rank(), which says which GPU is this rank's, local_world_size() and restart_count() are
  // from the environment where a launcher has started the process, else 0, 1 and 0. The
  // launcher hears of a rank that leaves where it is told the job_ranks. Errors: as FromEnv();
  // InvalidArgument for a rank that is none, for job_ranks that are not one for each rank and,
  // after the timeout, for ranks that were given different world sizes.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> New(const Store& store, int rank,
                                                           int world_size,
                                                           const ProcessGroupOptions& options);
  virtual ~ProcessGroup() = default;

  // A group of some of this one's ranks, as torch.distributed's new_group; null on the others. They
  // count in ascending order, however the list has them. Collective over all ranks of this group,
  // with the same ranks in the list, and in one order with its other operations. The options are
  // this group's. Any number of groups may live, and work, at a time: a failure of one, or its end,
  // leaves the others as they are, but for those of which a rank has died; any order of their ends
  // is right. Ranks in its messages are its own. local_rank() and local_world_size() stay those of
  // this group.
  //
  // Each costs a thread, a connection to the store and, between ranks of a host, shared memory (at
  // most 4 MiB a rank, which staging takes when it is first used); on GPUs two threads more and
  // NCCL's own memory. On one GPU, ranks that have several groups in common use them in the same
  // order: what runs at the same time may wait for the other's place on the GPU.
  //
  // InvalidArgument: no ranks, a rank that is none or is named twice, on this rank alone and
  // without a word to the others; another list than the other ranks', on all.
  virtual absl::StatusOr<std::unique_ptr<ProcessGroup>> Subgroup(std::vector<int> ranks) = 0;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual int local_rank() const = 0;
  virtual int local_world_size() const = 0;
  // How often the job was restarted before this process: 0 in the first attempt.
  virtual int restart_count() const = 0;
  // Which device and backend the group agreed on and why, the same on every rank: "shm: all ranks
  // share a host", "cuda, nccl 2.28.9: each of 4 ranks has a GPU of its own".
  virtual const std::string& description() const = 0;
  // For memory of communicator().device_type(); its host() for host memory.
  virtual Communicator& communicator() = 0;
  // The ordinal of this rank's GPU, by CUDA's count; -1 on the CPU.
  virtual int gpu() const = 0;
  // Null for a group of one without a launcher. Keys are under this round's own prefix.
  virtual Store* store() = 0;
  // Whether the launcher has asked the job to save and end after its step (ddprun's
  // --preempt_signal). Collective: every rank asks at the same steps, and all get the same answer,
  // true once the agent of any rank's node has asked; so all save at the same step, outside of any
  // signal handler, and none waits in a collective for one that has ended. Once true it stays true.
  // A call is an all-reduce of one number in host memory: 2 us for two ranks with a core each, 17
  // us for four on two cores, 60 us for two over TCP on one host, or a network's round trips. To
  // ask at every k-th step is as good, with the same k on all ranks. Errors are the communicator's:
  // a rank that left, for one.
  virtual absl::StatusOr<bool> ShouldStop() = 0;
  // Waits until every rank is here, then closes all connections in order. Call it last.
  virtual absl::Status Shutdown() = 0;
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_PROCESS_GROUP_H_
