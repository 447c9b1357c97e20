#include "tests/sim/timeline.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace ddprun::sim {
namespace {

constexpr int64_t kMillion = 1'000'000;

}  // namespace

void Timeline::At(TimePoint at, Happening what) {
  heap_.push_back({std::max(at, now_), planned_++, std::move(what)});
  std::push_heap(heap_.begin(), heap_.end(), IsLater);
}

bool Timeline::RunNext(TimePoint limit) {
  if (heap_.empty() || heap_.front().at > limit) {
    now_ = std::max(now_, limit);
    return false;
  }
  std::pop_heap(heap_.begin(), heap_.end(), IsLater);
  Entry entry = std::move(heap_.back());
  heap_.pop_back();
  now_ = entry.at;
  ++steps_;
  entry.what();
  return true;
}

// In two parts, or the product would not fit: whole millionths, then what is left.
TimePoint SimClock::Read(TimePoint true_time) const {
  const int64_t t = true_time.time_since_epoch().count();
  const int64_t skew = t / kMillion * ppm_ + t % kMillion * ppm_ / kMillion;
  return TimePoint(offset_ + Duration(t + skew));
}

Duration SimClock::Blur(const SimClock& other, Duration duration) const {
  const int apart = std::abs(ppm_ - other.ppm_);
  return duration / 100'000 * apart / 10 + std::chrono::microseconds(1);
}

TimePoint SimClock::WhenReads(TimePoint local) const {
  const int64_t wanted = (local.time_since_epoch() - offset_).count();
  // A first guess, and the few nanoseconds that it is off.
  int64_t t = static_cast<int64_t>(static_cast<__int128>(wanted) * kMillion / (kMillion + ppm_));
  while (Read(TimePoint(Duration(t))) >= local) --t;
  while (Read(TimePoint(Duration(t))) < local) ++t;
  return TimePoint(Duration(t));
}

}  // namespace ddprun::sim
