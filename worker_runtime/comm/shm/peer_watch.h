// Notices at once when a rank of this node ends.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_SHM_PEER_WATCH_H_
#define DDPRUN_WORKER_RUNTIME_COMM_SHM_PEER_WATCH_H_

#include <poll.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_runtime/comm/shm/shm_domain.h"

namespace ddp::internal {

// A connection to the process of member `index`. The socket closes when that process ends; the
// pidfd says so even while a child that it forked keeps the socket open.
struct PeerLink {
  int index = 0;
  ddprun::UniqueFd socket;
  // Shared by all groups that this process is in with that one. Null: not available.
  std::shared_ptr<const ddprun::UniqueFd> pidfd;
};

// Sleeps in poll() on a thread of its own and marks whoever ends in the shared memory.
class PeerWatch {
 public:
  // REQUIRES: `domain` outlives it. ResourceExhausted: there is no thread for it.
  static absl::StatusOr<std::unique_ptr<PeerWatch>> Start(ShmDomain& domain,
                                                          std::vector<PeerLink> links);
  ~PeerWatch();

 private:
  PeerWatch(ShmDomain& domain, std::vector<PeerLink> links);
  void ThreadMain();

  ShmDomain& domain_;
  const std::vector<PeerLink> links_;
  // Of the thread, which needs no memory of its own.
  std::vector<const PeerLink*> here_;
  std::vector<pollfd> polled_;
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_SHM_PEER_WATCH_H_
