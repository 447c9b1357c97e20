// How long to wait between two attempts. [pure]
#ifndef DDPRUN_RENDEZVOUS_CLIENT_BACKOFF_H_
#define DDPRUN_RENDEZVOUS_CLIENT_BACKOFF_H_

#include <chrono>
#include <optional>

#include "rendezvous/base/time.h"

namespace ddprun::rendezvous {

// 5 ms, doubling: up to 250 ms within the first 10 s, when an endpoint is about to come up, then up
// to 2 s. Each delay is spread over its upper half, so that a thousand agents which lost the same
// coordinator do not come back as one.
class Backoff {
 public:
  static constexpr Duration kFirst = std::chrono::milliseconds(5);
  static constexpr Duration kEarlyLimit = std::chrono::milliseconds(250);
  static constexpr Duration kEarlyPhase = std::chrono::seconds(10);
  static constexpr Duration kLimit = std::chrono::seconds(2);

  // `jitter` is from [0, 1): where in its upper half the delay lies.
  // The first delay since construction or Reset is 0.
  Duration Next(TimePoint now, double jitter);
  void Reset() { *this = Backoff(); }

 private:
  std::optional<TimePoint> started_at_;
  Duration next_ = kFirst;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_BACKOFF_H_
