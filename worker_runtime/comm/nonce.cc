#include "worker_runtime/comm/nonce.h"

#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

namespace ddp::internal {

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
