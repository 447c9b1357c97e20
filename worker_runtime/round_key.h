// The key of the round, from the launcher: in a memfd that its workers inherit, so that it is in no
// environment, no argument and no file. The variable kRoundKeyVar holds the descriptor's number.
#ifndef DDPRUN_WORKER_RUNTIME_ROUND_KEY_H_
#define DDPRUN_WORKER_RUNTIME_ROUND_KEY_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace ddp::internal {

inline constexpr size_t kRoundKeyBytes = 32;

// Reads it from `descriptor`, which stays open: a process may form several groups, and a program
// that it starts may inherit it. FailedPrecondition: the descriptor is not the launcher's any more.
absl::StatusOr<std::string> ReadRoundKey(int descriptor);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_ROUND_KEY_H_
