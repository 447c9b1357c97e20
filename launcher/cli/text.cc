#include "launcher/cli/text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxQuoted = 200;

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
  constexpr char kHex[] = "0123456789abcdef";
  if (byte == '\n') {
    out += "\\n";
  } else if (byte == '\r') {
    out += "\\r";
  } else {
    out += "\\x";
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
}

std::string Underscored(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string EscapeControl(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t length = PrintableSequence(text, i);
    if (length == 0) {
      AppendEscaped(ByteAt(text, i), out);
      ++i;
    } else {
      out.append(text, i, length);
      i += length;
    }
  }
  return out;
}

std::string Quoted(std::string_view value) {
  const bool is_long = value.size() > kMaxQuoted;
  return "'" + EscapeControl(value.substr(0, kMaxQuoted)) + (is_long ? "...'" : "'");
}

std::string NearestName(std::string_view name, const std::vector<std::string>& candidates) {
  if (name.size() > kMaxQuoted) return "";
  const std::string wanted = Underscored(name);
  std::string nearest;
  size_t least = std::max<size_t>(2, wanted.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(wanted, Underscored(candidate));
    if (distance < least && distance < candidate.size()) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string ReplaceMacro(std::string_view text, std::string_view name, std::string_view value) {
  const std::string macro = "${" + std::string(name) + "}";
  std::string out;
  for (;;) {
    const size_t at = text.find(macro);
    if (at == std::string_view::npos) return out.append(text);
    out.append(text.substr(0, at)).append(value);
    text.remove_prefix(at + macro.size());
  }
}

}  // namespace ddprun::launcher
