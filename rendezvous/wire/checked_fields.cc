#include "rendezvous/wire/checked_fields.h"

#include <string_view>

#include "absl/strings/str_format.h"

namespace ddprun::rendezvous {
namespace {

unsigned char ByteAt(std::string_view text, size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// The length of the well-formed character at `at`; 0: there is none.
size_t CharacterLength(std::string_view text, size_t at) {
  const unsigned char first = ByteAt(text, at);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || at + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((ByteAt(text, at + i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = ByteAt(text, at + 1);
  const bool is_overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool is_surrogate = first == 0xed && second >= 0xa0;
  const bool is_too_large = first == 0xf4 && second >= 0x90;
  return is_overlong || is_surrogate || is_too_large ? 0 : length;
}

// C0, DEL and C1: what could move a cursor or start an escape sequence.
bool IsControl(std::string_view text, size_t at, size_t length) {
  const unsigned char first = ByteAt(text, at);
  if (length == 1) return first < 0x20 || first == 0x7f;
  return length == 2 && first == 0xc2 && ByteAt(text, at + 1) < 0xa0;
}

}  // namespace

std::string CleanText(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = CharacterLength(text, at);
    std::string piece;
    if (length == 0 || IsControl(text, at, length)) {
      piece = absl::StrFormat("\\x%02x", ByteAt(text, at));
      // The second byte of a C1 control stands alone then, and is escaped in its turn.
      ++at;
    } else {
      piece = text.substr(at, length);
      at += length;
    }
    if (out.size() + piece.size() > kMaxCleanTextBytes) break;
    out += piece;
  }
  return out;
}

}  // namespace ddprun::rendezvous
