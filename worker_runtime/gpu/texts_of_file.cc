#include "worker_runtime/gpu/texts_of_file.h"

#include <algorithm>
#include <fstream>

namespace ddp::internal {
namespace {

constexpr size_t kPiece = 1 << 20, kMostBytes = 64 * kPiece;

}  // namespace

std::optional<size_t> FirstTextOfFile(const std::string& path,
                                      std::span<const std::string_view> texts) {
  size_t longest = 1;
  for (const std::string_view text : texts) longest = std::max(longest, text.size());
  std::ifstream file(path, std::ios::binary);
  std::string bytes;
  for (size_t read = 0; read < kMostBytes && file; read += kPiece) {
    // A text may have begun at the end of the piece before.
    bytes.erase(0, bytes.size() - std::min(bytes.size(), longest - 1));
    const size_t kept = bytes.size();
    bytes.resize(kept + kPiece);
    file.read(bytes.data() + kept, kPiece);
    bytes.resize(kept + static_cast<size_t>(file.gcount()));
    std::optional<size_t> first;
    size_t first_at = std::string::npos;
    for (size_t i = 0; i < texts.size(); ++i) {
      const size_t at = bytes.find(texts[i]);
      if (at >= first_at) continue;
      first = i;
      first_at = at;
    }
    if (first.has_value()) return first;
  }
  return std::nullopt;
}

}  // namespace ddp::internal
