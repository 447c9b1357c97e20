// Makes a new secret for a round, from the kernel's random source.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_MAKE_NONCE_H_
#define DDPRUN_WORKER_RUNTIME_COMM_MAKE_NONCE_H_

#include "worker_runtime/comm/nonce.h"

namespace ddp::internal {

// From the kernel's random source.
Nonce MakeNonce();

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_MAKE_NONCE_H_
