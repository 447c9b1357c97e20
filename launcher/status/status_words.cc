#include "launcher/status/status_words.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxShown = 4096;  // four lines of the widest terminals

struct Range {
  char32_t first, last;
};

// Without width, or of effect on what stands beside them.
constexpr Range kUnseen[] = {{0xad, 0xad},     {0x61c, 0x61c},   {0x200b, 0x200f},
                             {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfe00, 0xfe0f},
                             {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff}};
// Of two columns, taken a little too widely rather than too narrowly.
constexpr Range kWide[] = {
    {0x1100, 0x115f},   {0x231a, 0x231b},   {0x23e9, 0x23f3},  {0x25fd, 0x25fe}, {0x2614, 0x27bf},
    {0x2b1b, 0x2b1c},   {0x2b50, 0x2b55},   {0x2e80, 0xa4cf},  {0xa960, 0xa97c}, {0xac00, 0xd7a3},
    {0xf900, 0xfaff},   {0xfe10, 0xfe6f},   {0xff01, 0xff60},  {0xffe0, 0xffe6}, {0x16fe0, 0x18cff},
    {0x1aff0, 0x1b2ff}, {0x1f000, 0x1faff}, {0x20000, 0x3fffd}};

bool IsIn(const Range* begin, const Range* end, char32_t character) {
  return character >= begin->first && std::any_of(begin, end, [character](const Range& range) {
           return range.first <= character && character <= range.last;
         });
}

struct Character {
  size_t length = 1;
  char32_t value = 0;
};

// At `i`; of what is no UTF-8, one byte.
Character CharacterAt(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) { return static_cast<uint8_t>(text[k]); };
  const uint8_t lead = byte(i);
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
  if (length == 1 || i + length > text.size()) return {1, lead};
  char32_t value = lead & (0xff >> (length + 1));
  for (size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xc0) != 0x80) return {1, lead};
    value = value << 6 | (byte(i + k) & 0x3f);
  }
  return {length, value};
}

int WidthOf(const Character& character) {
  return IsIn(std::begin(kWide), std::end(kWide), character.value) ? 2 : 1;
}

// How many bytes at the start of `text` take at most `columns`.
size_t BytesWithin(std::string_view text, int columns) {
  size_t at = 0;
  for (int left = columns; at < text.size();) {
    const Character character = CharacterAt(text, at);
    left -= WidthOf(character);
    if (left < 0) break;
    at += character.length;
  }
  return at;
}

// "3.2", and "3" rather than "3.0".
std::string OneDecimal(double value) {
  std::string text = absl::StrFormat("%.1f", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

}  // namespace

std::string GroupedDigits(int64_t number) {
  const uint64_t size =
      number < 0 ? ~static_cast<uint64_t>(number) + 1 : static_cast<uint64_t>(number);
  const std::string digits = absl::StrCat(size);
  std::string out = number < 0 ? "-" : "";
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string CountedNoun(size_t count, const char* noun) {
  return absl::StrCat(GroupedDigits(static_cast<int64_t>(count)), " ", noun, count == 1 ? "" : "s");
}

std::string TimeText(double seconds) {
  if (!std::isfinite(seconds) || seconds <= 0) return "0 s";
  if (seconds < 0.00995) return absl::StrCat(OneDecimal(seconds * 1e3), " ms");
  if (seconds < 0.9995) return absl::StrFormat("%.0f ms", seconds * 1e3);
  if (seconds < 9.95) return absl::StrCat(OneDecimal(seconds), " s");
  const int64_t whole = static_cast<int64_t>(std::min(seconds + 0.05, 1e15));
  const auto pair = [](int64_t large, const char* unit, int64_t small, const char* small_unit) {
    return small == 0 ? absl::StrCat(large, unit)
                      : absl::StrCat(large, unit, " ", small, small_unit);
  };
  constexpr int64_t kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;
  if (whole < kMinute) return absl::StrCat(whole, " s");
  if (whole < 10 * kMinute) return pair(whole / kMinute, " min", whole % kMinute, " s");
  if (whole < kHour) return absl::StrCat(whole / kMinute, " min");
  if (whole < kDay) return pair(whole / kHour, " h", whole % kHour / kMinute, " min");
  if (whole < 100 * kDay) return pair(whole / kDay, " d", whole % kDay / kHour, " h");
  return absl::StrCat(GroupedDigits(whole / kDay), " d");
}

std::string MemoryText(int64_t bytes) {
  constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  double value = static_cast<double>(std::max<int64_t>(bytes, 0));
  size_t unit = 0;
  for (; value >= 1023.5 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return value < 99.95 ? absl::StrCat(OneDecimal(value), kUnits[unit])
                       : absl::StrFormat("%.0f%s", value, kUnits[unit]);
}

std::string PercentText(double share) {
  if (!std::isfinite(share)) return "";
  return absl::StrFormat("%.0f %%", std::clamp(share, 0.0, 1e9) * 100);
}

std::string ShownText(std::string_view text) {
  const std::string escaped = EscapeControl(text.substr(0, CharacterStart(text, kMaxShown)));
  std::string out;
  out.reserve(escaped.size());
  for (size_t i = 0; i < escaped.size();) {
    const Character character = CharacterAt(escaped, i);
    if (character.value == '\t') {
      out += ' ';
    } else if (!IsIn(std::begin(kUnseen), std::end(kUnseen), character.value)) {
      out.append(escaped, i, character.length);
    }
    i += character.length;
  }
  return out;
}

int ColumnsOf(std::string_view text) {
  int columns = 0;
  for (size_t i = 0; i < text.size();) {
    const Character character = CharacterAt(text, i);
    columns += WidthOf(character);
    i += character.length;
  }
  return columns;
}

std::string CutToColumns(std::string_view text, int columns) {
  columns = std::max(columns, 0);
  const size_t whole = BytesWithin(text, columns);
  if (whole == text.size() || columns < 4) return std::string(text.substr(0, whole));
  return std::string(text.substr(0, BytesWithin(text, columns - 3))) + "...";
}

std::vector<std::string> WrappedLines(std::string_view text, int columns, int max_lines) {
  std::vector<std::string> lines;
  const std::string indent(columns >= 12 ? 2 : 0, ' ');
  while (!text.empty() || lines.empty()) {
    const std::string& lead = lines.empty() ? "" : indent;
    const int width = std::max(columns - static_cast<int>(lead.size()), 1);
    size_t end = BytesWithin(text, width);
    if (end == text.size() || static_cast<int>(lines.size()) + 1 == max_lines) {
      lines.push_back(lead + CutToColumns(text, width));
      break;
    }
    const size_t space = text.substr(0, end + 1).rfind(' ');
    if (space != std::string_view::npos && space > 0) end = space;
    if (end == 0) end = CharacterAt(text, 0).length;  // a wide one in a single column
    lines.push_back(lead + std::string(text.substr(0, end)));
    text.remove_prefix(end);
    while (text.starts_with(' ')) text.remove_prefix(1);
  }
  return lines;
}

}  // namespace ddprun::launcher
