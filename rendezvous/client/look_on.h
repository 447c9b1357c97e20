// Asking a coordinator about its job, from anywhere, without a place in it.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_LOOK_ON_H_
#define DDPRUN_RENDEZVOUS_CLIENT_LOOK_ON_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// All parts of the answers together. Resolves the name, and waits at most `timeout`. An error names
// the address and what went wrong there: nobody listens, no ddprun, one that is too old.
absl::StatusOr<GiveAnswers> LookOn(const std::string& host, uint16_t port, Duration timeout);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_LOOK_ON_H_
