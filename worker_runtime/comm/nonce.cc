#include "worker_runtime/comm/nonce.h"

#include <sys/random.h>

#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "rendezvous/base/check.h"

namespace ddp::internal {

Nonce MakeNonce() {
  Nonce nonce;
  // Up to 256 bytes come whole and uninterrupted once the kernel's pool is ready.
  DDP_CHECK(getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size()));
  return nonce;
}

std::string NonceText(const Nonce& nonce) {
  return absl::BytesToHexString(
      std::string(reinterpret_cast<const char*>(nonce.data()), nonce.size()));
}

bool ParseNonce(const std::string& text, Nonce* nonce) {
  if (text.size() != 2 * nonce->size()) return false;
  for (char digit : text) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(digit))) return false;
  }
  const std::string bytes = absl::HexStringToBytes(text);
  std::memcpy(nonce->data(), bytes.data(), nonce->size());
  return true;
}

}  // namespace ddp::internal
