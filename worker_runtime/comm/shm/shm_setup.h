// How the ranks of one node come to share memory.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_SHM_SHM_SETUP_H_
#define DDPRUN_WORKER_RUNTIME_COMM_SHM_SHM_SETUP_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ddp/store.h"
#include "worker_runtime/comm/op.h"
#include "worker_runtime/comm/shm/peer_watch.h"
#include "worker_runtime/comm/shm/shm_domain.h"

namespace ddp::internal {

struct ShmGroup {
  std::unique_ptr<ShmDomain> domain;
  std::unique_ptr<PeerWatch> watch;
};

// Joins `ranks` (global, ascending, all on this node, `index` is ours). The first of them makes the
// memory and hands it over an abstract Unix socket to whoever runs as the same user and knows the
// nonce that it put into the store under `key`, which belongs to this round. No name outlives the
// processes. Who fails says why in the store, so that the first rank and who has not joined yet do
// not wait for the deadline. Errors: DeadlineExceeded naming the ranks that did not come,
// Unavailable, and what creating the memory gives.
absl::StatusOr<ShmGroup> JoinShmGroup(Store& store, const std::string& key, std::vector<int> ranks,
                                      int index, Clock::time_point deadline);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_SHM_SHM_SETUP_H_
