#include "rendezvous/client/backoff.h"

#include <algorithm>

namespace ddprun::rendezvous {

Duration Backoff::Next(TimePoint now, double jitter) {
  if (!started_at_) {
    started_at_ = now;
    return Duration{0};
  }
  const Duration limit = now - *started_at_ < kEarlyPhase ? kEarlyLimit : kLimit;
  const Duration delay = std::min(next_, limit);
  next_ = std::min(delay * 2, kLimit);
  const auto half = delay / 2;
  return half + Duration(static_cast<Duration::rep>(jitter * static_cast<double>(half.count())));
}

}  // namespace ddprun::rendezvous
