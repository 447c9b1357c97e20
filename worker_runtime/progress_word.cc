#include "worker_runtime/progress_word.h"

#include <algorithm>
#include <limits>

namespace ddp::internal {

uint64_t PackProgress(int64_t done, int64_t all) {
  if (all <= 0) return 0;
  done = std::clamp<int64_t>(done, 0, all);
  while (all > std::numeric_limits<uint32_t>::max()) {
    all /= 2;
    done /= 2;
  }
  return static_cast<uint64_t>(all) << 32 | static_cast<uint64_t>(done);
}

ProgressShare UnpackProgress(uint64_t word) {
  return {.done = static_cast<uint32_t>(word), .all = static_cast<uint32_t>(word >> 32)};
}

}  // namespace ddp::internal
