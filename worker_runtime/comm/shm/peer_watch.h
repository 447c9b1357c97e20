// Notices at once when a rank of this node ends.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_SHM_PEER_WATCH_H_
#define DDPRUN_WORKER_RUNTIME_COMM_SHM_PEER_WATCH_H_

#include <thread>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "worker_runtime/comm/shm/shm_domain.h"

namespace ddp::internal {

// A connection to the process of member `index`. The socket closes when that process ends; the
// pidfd says so even while a child that it forked keeps the socket open.
struct PeerLink {
  int index = 0;
  ddprun::UniqueFd socket;
  ddprun::UniqueFd pidfd;  // may be closed: not available
};

// Sleeps in poll() on a thread of its own and marks whoever ends in the shared memory.
class PeerWatch {
 public:
  // REQUIRES: `domain` outlives this.
  PeerWatch(ShmDomain& domain, std::vector<PeerLink> links);
  ~PeerWatch();

 private:
  void ThreadMain();

  ShmDomain& domain_;
  std::vector<PeerLink> links_;
  ddprun::UniqueFd stop_;
  std::thread thread_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_SHM_PEER_WATCH_H_
