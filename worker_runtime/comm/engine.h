// What a backend implements: executing one operation after the other.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_ENGINE_H_
#define DDPRUN_WORKER_RUNTIME_COMM_ENGINE_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker_runtime/comm/op.h"

namespace ddp::internal {

// Driven by QueuedCommunicator, which owns it.
class Engine {
 public:
  virtual ~Engine() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual const char* backend() const = 0;

  // Executes `op`, at most until its deadline. One call at a time, in the order of op.sequence, not
  // always from the same thread. After an error no further call comes.
  virtual absl::Status Run(const Op& op) = 0;

  // Makes the Run() under way, here and on the peers, end with Aborted soon, marked with
  // `left_peer` (left_peer.h). Safe from any thread.
  virtual void Abort(const std::string& reason, std::optional<int> left_peer) = 0;
  // Tells the peers that this rank goes in order. No call of Run() follows. Not concurrent to
  // Run().
  virtual void Leave() = 0;
  // A peer's failure noticed outside of an operation; Ok otherwise. Safe from any thread.
  virtual absl::Status peer_error() const = 0;
  // The process of `rank` where it is known to be one of this node; else 0. Safe from any thread.
  virtual pid_t ProcessOf(int rank) const = 0;
  // Ranks that are known not to have entered the operation of the Run() under way. Safe from any
  // thread.
  virtual std::vector<int> LateRanks() const { return {}; }
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_ENGINE_H_
