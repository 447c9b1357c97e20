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

// What the collectives run on.
// - kAuto: `nccl` on GPUs. For host memory it is `local` for world size 1, `shm` if all ranks share
//   a host, and `tcp` otherwise. With `tcp`, shm is used between the ranks of one host.
// - kTcp: tcp between all ranks, also on one host.
// - kNccl: only for GPUs.
enum class Backend { kAuto, kShm, kTcp, kNccl };

// The device that gradients are on.
// - kCpu: CUDA is never opened.
// - kCuda: every rank has a GPU of its own, or the group is not formed.
// - kAuto: GPUs if every rank has its own GPU and all that it needs, the CPU otherwise. The choice
//   is the same on all ranks.
//
// Slices (MIG) of one GPU count as that GPU. Ranks may share it from NCCL 2.30.3 on, if all set
// NCCL_MULTI_RANK_GPU_ENABLE=1.
enum class DeviceChoice { kCpu, kCuda, kAuto };

// How much a group looks for mistakes of the program beyond those that it meets anyway. The names
// are those of PyTorch's levels. With kDetail on GPUs the ranks compare each operation over host
// memory before it is launched. A call then waits for all ranks. NCCL compares nothing: it may
// complete a sum on one rank and an average on another, with garbage. The level does not compare
// what a StepGraph captures, because StepGraph compares graphs. It compares a replay as one call.
// Operations in host memory are compared at every level.
enum class DebugLevel { kOff, kDetail };

struct ProcessGroupOptions {
  Backend backend = Backend::kAuto;
  // The default timeout of every operation. PyTorch's is 30 minutes for CPU groups.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  DeviceChoice device = DeviceChoice::kCpu;
  // TORCH_DISTRIBUTED_DEBUG=DETAIL in the environment also selects kDetail. The level that one rank
  // asks for applies to all.
  DebugLevel debug_level = DebugLevel::kOff;
  // For New(): the rank in the launcher's job of each rank of the group. Empty: not known.
  std::vector<int> job_ranks = {};
};

// A group made from the environment that ddprun or torchrun gives a worker: RANK, WORLD_SIZE,
// LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RESTART_COUNT, DDPRUN_ROUND.
// Without RANK it is a group of one, so a program also runs without a launcher. If the group fails
// because a rank has left, it writes which one to the file that TORCHELASTIC_ERROR_FILE names. The
// launcher then does not take this process's end for the first failure.
class ProcessGroup {
 public:
  // Forms the group of this process's job. Collective: all ranks make the same number of groups,
  // one after the other has ended. Errors:
  // - InvalidArgument names the variable and its value.
  // - DeadlineExceeded names the ranks that did not come.
  // - FailedPrecondition: the backend that was asked for cannot work here.
  //
  // On GPUs NCCL's start does not end if a rank does not come. After an error a thread of the
  // process may stay in it for ever, so the program should end.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> FromEnv(const ProcessGroupOptions& options);

  // Forms a group of any `world_size` processes that reach one store, as torch.distributed's
  // init_process_group(store=...). Collective over them. `store` is their key space. Groups that
  // are formed at the same time need one each (a PrefixStore). Groups of the same size that follow
  // each other may share one. The group opens its own connection and does not keep `store`.
  //
  // If a launcher has started the process, local_rank(), local_world_size() and restart_count() are
  // from the environment. Otherwise they are 0, 1 and 0. This rank's GPU is that of local_rank().
  // With job_ranks the group reports a rank that leaves to the launcher. Errors are those of
  // FromEnv(), and InvalidArgument:
  // - for a rank outside the world size;
  // - if job_ranks does not have one entry for each rank;
  // - after the timeout, if the ranks were given different world sizes.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> New(const Store& store, int rank,
                                                           int world_size,
                                                           const ProcessGroupOptions& options);
  virtual ~ProcessGroup() = default;

  // Forms a group of some of this group's ranks, as torch.distributed's new_group. It returns null
  // on the others. The new ranks count in ascending order, whatever the order of the list.
  // Collective over all ranks of this group, with the same ranks in the list, and in one order with
  // its other operations. The options are this group's.
  //
  // Any number of groups may exist and work at a time. The failure or end of one does not change
  // the others, except groups of which a rank has died. Groups may end in any order. Messages of
  // the new group count its own ranks. Its local_rank() and local_world_size() are those of this
  // group.
  //
  // Each group costs a thread, a connection to the store and, between ranks of a host, shared
  // memory. That is at most 4 MiB a rank, which staging takes at its first use. On GPUs it also
  // costs two threads and NCCL's own memory. Ranks that share several groups on one GPU use these
  // groups in the same order. Otherwise operations that run at the same time may wait for each
  // other's place on the GPU.
  //
  // InvalidArgument on this rank alone, unknown to the others: the list is empty, or has a rank
  // twice or one outside the group. InvalidArgument on all ranks: the lists differ.
  virtual absl::StatusOr<std::unique_ptr<ProcessGroup>> Subgroup(std::vector<int> ranks) = 0;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual int local_rank() const = 0;
  virtual int local_world_size() const = 0;
  // How often the job was restarted before this process: 0 in the first attempt.
  virtual int restart_count() const = 0;
  // Which device and backend the group agreed on, and why. The text is the same on every rank.
  // Examples are "shm: all ranks share a host" and "cuda, nccl 2.28.9: each of 4 ranks has a GPU of
  // its own".
  virtual const std::string& description() const = 0;
  // The communicator for memory of the group's device. Its host() is for host memory.
  virtual Communicator& communicator() = 0;
  // The ordinal of this rank's GPU in CUDA's count, -1 on the CPU.
  virtual int gpu() const = 0;
  // The job's store. Null for a group of one without a launcher. Keys are under this round's own
  // prefix.
  virtual Store* store() = 0;
  // Returns whether the launcher has asked the job to save and end after its step (ddprun's
  // --preempt_signal). Collective: every rank asks at the same steps. All get the same answer: true
  // once the agent of any rank's node has asked. So all ranks save at the same step, outside of any
  // signal handler, and no rank waits in a collective for one that has ended. Once true it stays
  // true.
  //
  // A call is an all-reduce of one number in host memory. It takes 2 us for two ranks with a core
  // each, and 17 us for four ranks on two cores. It takes 60 us for two over TCP on one host. Over
  // a network it takes the network's round trips. You may ask only at every k-th step, with the
  // same k on all ranks. Errors are the communicator's, for example if a rank has left.
  virtual absl::StatusOr<bool> ShouldStop() = 0;
  // Waits until every rank calls it, then closes all connections in order. Call it last.
  virtual absl::Status Shutdown() = 0;
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_PROCESS_GROUP_H_
