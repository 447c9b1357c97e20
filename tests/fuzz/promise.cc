#include "tests/fuzz/promise.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "rendezvous/base/plain_text.h"

namespace ddprun::fuzz {

void Promise(bool holds, const char* sentence, std::string_view seen) {
  if (holds) return;
  std::fprintf(stderr, "promise broken: %s\n", sentence);
  if (!seen.empty())
    std::fprintf(stderr, "seen: %.*s\n", static_cast<int>(seen.size()), seen.data());
  std::abort();
}

std::vector<std::vector<std::string_view>> Divisions(std::string_view bytes) {
  std::vector<std::vector<std::string_view>> divisions = {{bytes}, {}, {}};
  for (size_t i = 0; i < bytes.size(); ++i) divisions[1].push_back(bytes.substr(i, 1));
  // The lengths follow from the bytes themselves, so that a mutation moves the cuts.
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = 1 + (static_cast<unsigned char>(bytes[at]) * size_t{37} + at) % 19;
    divisions[2].push_back(bytes.substr(at, length));
    at += length;
  }
  return divisions;
}

bool IsPlain(std::string_view text, bool allows_line_feeds) {
  std::string without(text);
  if (allows_line_feeds) std::replace(without.begin(), without.end(), '\n', ' ');
  return EscapeControl(without) == without;
}

uint64_t Input::Number(size_t bytes) {
  uint64_t number = 0;
  for (const char byte : Text(bytes)) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

std::string_view Input::Text(size_t bytes) {
  const std::string_view text = rest_.substr(0, bytes);
  rest_.remove_prefix(text.size());
  return text;
}

}  // namespace ddprun::fuzz
