#include "worker_runtime/checksum.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
// The header alone: programs link no further library.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ddp::internal {

struct Checksum::State {
  XXH3_state_t state;  // aligned to 64 bytes, which new holds since C++17
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->state);
  XXH3_128bits_reset(&state_->state);
}

Checksum::~Checksum() = default;

void Checksum::Add(const void* data, size_t bytes) {
  if (bytes > 0) XXH3_128bits_update(&state_->state, data, bytes);
}

Checksum::Digest Checksum::Get() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->state));
  Digest digest;
  static_assert(sizeof(canonical.digest) == sizeof(digest));
  std::copy(std::begin(canonical.digest), std::end(canonical.digest), digest.begin());
  return digest;
}

std::string ToHex(const Checksum::Digest& digest) {
  const auto* bytes = reinterpret_cast<const char*>(digest.data());
  return absl::BytesToHexString(absl::string_view(bytes, digest.size()));
}

}  // namespace ddp::internal
