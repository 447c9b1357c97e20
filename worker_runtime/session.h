// Which key space of the store belongs to this start of the group.
#ifndef DDPRUN_WORKER_RUNTIME_SESSION_H_
#define DDPRUN_WORKER_RUNTIME_SESSION_H_

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "ddp/store.h"
#include "rendezvous/base/clock.h"
#include "worker_runtime/env_contract.h"

namespace ddp::internal {

// The prefix of this round's keys. ddprun says the round, so it is "ddp/<epoch>.<round>". The real
// torchrun's store and keys outlive a restart, and its restart count differs between nodes: there
// the ranks agree by echo. Rank 0 publishes a new id; the others say hello to it with a fresh
// nonce, and go when rank 0 answers with theirs. A rank 0 leaves word in the session before its
// own, which sends those who wait there on. Every wait is for one key, and the store wakes it.
// DeadlineExceeded names the ranks that did not come, InvalidArgument those that were given another
// world size. Aborted tells a rank 0 that another one has taken its place, FailedPrecondition that
// ranks are of different releases. `clock` is the store's, too.
absl::StatusOr<std::string> AgreeOnSession(Store& store, const WorkerEnv& env,
                                           std::chrono::milliseconds timeout,
                                           const ddprun::Clock& clock);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_SESSION_H_
