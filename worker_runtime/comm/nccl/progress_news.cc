#include "worker_runtime/comm/nccl/progress_news.h"

namespace ddp::internal {

bool ProgressNews::ShouldTell(const Place& place, TimePoint now, bool is_stuck,
                              std::chrono::milliseconds patience) {
  if (place != place_) {
    place_ = place;
    since_ = now;
  }
  const bool is_slow = is_stuck || (!place.is_waiting && now - since_ >= patience);
  is_awaited_ = is_awaited_ || is_slow;
  if (!is_awaited_ || place.sequence == told_) return false;
  told_ = place.sequence;
  is_awaited_ = is_slow;
  return told_ != 0;
}

}  // namespace ddp::internal
