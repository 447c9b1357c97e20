// How the ranks of a round become a group.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_FORM_GROUP_H_
#define DDPRUN_WORKER_RUNTIME_COMM_FORM_GROUP_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ddp/process_group.h"
#include "ddp/store.h"
#include "worker_runtime/comm/group_communicator.h"
#include "worker_runtime/comm/plan.h"

namespace ddp::internal {

struct GroupMember {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  std::string error_file;      // where a peer that left is told of; "": nowhere
  std::vector<int> job_ranks;  // by rank of the group; empty: the same
  // But for the nonce, the key and the GPU, which FormGroup fills in.
  Capabilities capabilities;
  // The round's, of 32 bytes: what ranks say to each other over a network is sealed with it. "":
  // there is none.
  std::string round_key;
  std::chrono::milliseconds timeout{0};  // to form the group, and of every operation
  // Another connection to the same key space, made only when something went wrong: where ranks of
  // other nodes say why.
  std::function<absl::StatusOr<std::unique_ptr<Store>>(std::chrono::milliseconds timeout)>
      connect_store;
};

struct FormedGroup {
  std::unique_ptr<GroupCommunicator> communicator;
  int gpu = -1;             // the ordinal of this rank's
  std::string description;  // backend and why, the same on all ranks
};

// Collective. `store` is the key space of this round alone. Every rank publishes what it can do,
// rank 0 decides, all follow: no rank can choose differently. DeadlineExceeded names the ranks that
// did not come.
absl::StatusOr<FormedGroup> FormGroup(Store& store, const GroupMember& member);

// The group of one; needs no store. Errors: the device's.
absl::StatusOr<FormedGroup> FormLocalGroup(const GroupMember& member);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_FORM_GROUP_H_
