#include "launcher/logs/tail_buffer.h"

namespace ddprun::launcher {

void TailBuffer::Append(std::string_view bytes) {
  if (bytes.size() >= kMaxBytes) {
    bytes_.assign(bytes.substr(bytes.size() - kMaxBytes));
    return;
  }
  if (bytes_.size() + bytes.size() > 2 * kMaxBytes) bytes_.erase(0, bytes_.size() - kMaxBytes);
  bytes_.append(bytes);
}

std::string TailBuffer::LastLines(size_t max_lines) const {
  std::string_view tail = bytes_;
  if (tail.size() > kMaxBytes) tail.remove_prefix(tail.size() - kMaxBytes);
  if (tail.empty() || max_lines == 0) return "";
  // The newline that ends the last line ends no line before it.
  size_t begin = tail.size() - (tail.back() == '\n' ? 1 : 0);
  for (size_t lines = 0; lines < max_lines; ++lines) {
    const size_t newline = begin == 0 ? std::string_view::npos : tail.rfind('\n', begin - 1);
    if (newline == std::string_view::npos) return std::string(tail);
    begin = newline;
  }
  return std::string(tail.substr(begin + 1));
}

}  // namespace ddprun::launcher
