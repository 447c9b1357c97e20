#include "rendezvous/base/plain_text.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

uint8_t ByteAt(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

// Length of the valid, printable UTF-8 sequence that starts at `i`; 0 when there is none.
size_t PrintableSequence(std::string_view text, size_t i) {
  const uint8_t lead = ByteAt(text, i);
  if (lead < 0x80) return (lead >= 0x20 && lead != 0x7f) || lead == '\t' ? 1 : 0;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || i + length > text.size()) return 0;
  for (size_t k = 1; k < length; ++k) {
    if ((ByteAt(text, i + k) & 0xc0) != 0x80) return 0;
  }
  const uint8_t second = ByteAt(text, i + 1);
  if (lead == 0xc2 && second < 0xa0) return 0;  // C1 controls
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f)) return 0;
  if ((lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) return 0;
  return length;
}

void AppendEscaped(uint8_t byte, std::string& out) {
  if (byte == '\n') {
    out += "\\n";
  } else if (byte == '\r') {
    out += "\\r";
  } else {
    absl::StrAppend(&out, "\\x", absl::Hex(byte, absl::kZeroPad2));
  }
}

template <typename Append>
std::string Printable(std::string_view text, Append append) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t length = PrintableSequence(text, i);
    if (length == 0) {
      append(ByteAt(text, i), out);
      ++i;
    } else {
      out.append(text, i, length);
      i += length;
    }
  }
  return out;
}

}  // namespace

std::string EscapeControl(std::string_view text) { return Printable(text, AppendEscaped); }

std::string ReplaceControl(std::string_view text) {
  return Printable(text, [](uint8_t, std::string& out) { out += "\xef\xbf\xbd"; });
}

size_t CharacterStart(std::string_view text, size_t at) {
  if (at >= text.size()) return text.size();
  // A character has three such bytes at most; more of them are no text.
  for (size_t back = 0; back <= std::min<size_t>(at, 3); ++back) {
    if ((ByteAt(text, at - back) & 0xc0) != 0x80) return at - back;
  }
  return at;
}

std::string EndpointText(const std::string& host, uint16_t port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace ddprun
