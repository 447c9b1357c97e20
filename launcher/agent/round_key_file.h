// The round's key, as the workers of this node get it.
#ifndef DDPRUN_LAUNCHER_AGENT_ROUND_KEY_FILE_H_
#define DDPRUN_LAUNCHER_AGENT_ROUND_KEY_FILE_H_

#include "absl/status/statusor.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

// A memfd with the key of `assignment` that nobody can change: it has no name, and who has not
// inherited the descriptor does not get at it. Closed where the workers need none, as nodes do not
// know each other (`has_identity`) or there is only one. FailedPrecondition: they do, and the
// coordinator gave no key, so that the workers would talk in the clear.
absl::StatusOr<UniqueFd> RoundKeyFileOf(const rendezvous::Assignment& assignment,
                                        bool has_identity);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_ROUND_KEY_FILE_H_
