// Why a call to etcd failed, in words for a person. [pure]
#ifndef DDPRUN_RENDEZVOUS_ETCD_CALL_TROUBLE_H_
#define DDPRUN_RENDEZVOUS_ETCD_CALL_TROUBLE_H_

#include <string>

#include "absl/status/status.h"

namespace ddprun::rendezvous {

// How a cause begins that a member without TLS makes, and others may.
inline constexpr char kNoTlsAnswer[] = "it does not answer in TLS";

// Of gRPC's code, which is absl's, and message (the words are those of gRPC 1.51). At most 300
// bytes, without control characters.
std::string CallTrouble(absl::StatusCode code, const std::string& message, bool is_tls);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_CALL_TROUBLE_H_
