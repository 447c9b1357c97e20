#include "launcher/status/bytes_text.h"

#include <cstddef>
#include <iterator>

namespace ddprun::launcher {

std::string BytesText(int64_t bytes) {
  constexpr const char* kUnits[] = {" bytes", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
  if (bytes < 1024) return std::to_string(bytes) + kUnits[0];
  size_t unit = 0;
  int64_t size = 1;
  while (unit + 1 < std::size(kUnits) && bytes / size >= 1024) {
    size *= 1024;
    ++unit;
  }
  const int64_t whole = bytes / size;
  // Of an exbibyte ten times the rest would not fit.
  const int64_t tenth = (bytes % size) / (size / 1024) * 10 / 1024;
  std::string text = std::to_string(whole);
  if (tenth != 0) text += "." + std::to_string(tenth);
  return text + kUnits[unit];
}

}  // namespace ddprun::launcher
