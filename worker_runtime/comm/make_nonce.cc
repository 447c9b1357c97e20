#include "worker_runtime/comm/make_nonce.h"

#include <sys/random.h>

#include "rendezvous/base/check.h"

namespace ddp::internal {

Nonce MakeNonce() {
  Nonce nonce;
  // Up to 256 bytes come whole and uninterrupted once the kernel's pool is ready.
  DDP_CHECK(getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size()));
  return nonce;
}

}  // namespace ddp::internal
