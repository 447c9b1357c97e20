#include "rendezvous/tls/token_strength.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <string>

#include "absl/strings/ascii.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kWordLetters = 4;
constexpr size_t kConsonants = 4;  // so many in a row make no word
constexpr double kWordBits = 13;
constexpr size_t kRowCharacters = 6;
constexpr double kRowBits = 8;

// How many characters one of the token may have been.
double Alphabet(std::string_view token) {
  const auto has = [&](auto&& is_one) { return std::ranges::any_of(token, is_one); };
  const bool has_lower = has([](char c) { return absl::ascii_islower(c); });
  const bool has_upper = has([](char c) { return absl::ascii_isupper(c); });
  const bool has_digit = has([](char c) { return absl::ascii_isdigit(c); });
  const bool has_other = has([](char c) { return !absl::ascii_isalnum(c); });
  return (has_lower ? 26 : 0) + (has_upper ? 26 : 0) + (has_digit ? 10 : 0) + (has_other ? 32 : 0);
}

// The shortest block whose repetition the token is.
std::string_view Block(std::string_view token) {
  for (size_t size = 1; size <= token.size() / 2; ++size) {
    if (token.substr(size) == token.substr(0, token.size() - size)) return token.substr(0, size);
  }
  return token;
}

// The letters in front: of one case, or a capital and small ones. 0: they are no word.
size_t WordAt(std::string_view text) {
  const auto run = [&](size_t from, bool (*is_letter)(unsigned char)) {
    return static_cast<size_t>(std::find_if_not(text.begin() + from, text.end(), is_letter) -
                               text.begin());
  };
  const size_t small = run(run(0, absl::ascii_isupper) == 1 ? 1 : 0, absl::ascii_islower);
  const size_t size = std::max(run(0, absl::ascii_isupper), small);
  if (size < kWordLetters) return 0;
  size_t consonants = 0;
  for (const char c : text.substr(0, size)) {
    const bool is_vowel = std::string_view("aeiouyAEIOUY").find(c) != std::string_view::npos;
    consonants = is_vowel ? 0 : consonants + 1;
    if (consonants == kConsonants) return 0;
  }
  return size;
}

size_t RowAt(std::string_view text) {
  size_t size = std::min<size_t>(text.size(), 1);
  while (size < text.size() && std::abs(text[size] - text[size - 1]) <= 1) ++size;
  return size;
}

}  // namespace

double EstimateTokenBits(std::string_view token) {
  std::string text(token);
  std::erase_if(text, [](char c) { return c == '-' || c == '_'; });
  const bool is_hex = std::ranges::all_of(text, absl::ascii_isxdigit);
  const bool is_decimal = std::ranges::all_of(text, absl::ascii_isdigit);
  const double each = std::log2(is_hex && !is_decimal ? 16 : std::max(1.0, Alphabet(text)));
  double bits = 0;
  // Hyphens end a word.
  for (std::string_view rest = Block(token); !rest.empty();) {
    const size_t word = is_hex ? 0 : WordAt(rest), row = RowAt(rest);
    const bool is_row = row >= kRowCharacters;
    const bool is_word = word > 0 && !is_row;
    const bool is_counted = rest.front() != '-' && rest.front() != '_';
    bits += is_row ? kRowBits : is_word ? kWordBits : is_counted ? each : 0;
    rest.remove_prefix(is_row ? row : is_word ? word : 1);
  }
  return bits;
}

}  // namespace ddprun::rendezvous
