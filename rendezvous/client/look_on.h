// Asking a coordinator about its job, from anywhere, without a place in it.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_LOOK_ON_H_
#define DDPRUN_RENDEZVOUS_CLIENT_LOOK_ON_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/types.h"
#include "rendezvous/tls/identity.h"

namespace ddprun::rendezvous {

// All parts of the answers together. Resolves the name, and waits at most `timeout`. An error names
// the address and what went wrong there: nobody listens, no ddprun, one that is too old.
// In TLS where there is an `identity`; UNAUTHENTICATED: the coordinator and we do not take each
// other for one job's.
absl::StatusOr<GiveAnswers> LookOn(const std::string& host, uint16_t port,
                                   const std::shared_ptr<const TlsIdentity>& identity,
                                   Duration timeout);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_LOOK_ON_H_
