// Virtual time: what is to happen, in order; and the clocks of processes, which differ from it.
#ifndef DDPRUN_TESTS_SIM_TIMELINE_H_
#define DDPRUN_TESTS_SIM_TIMELINE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "rendezvous/base/time.h"

namespace ddprun::sim {

class Timeline {
 public:
  using Happening = std::function<void()>;

  TimePoint now() const { return now_; }
  uint64_t steps() const { return steps_; }
  // What is planned for the past happens now; what is planned for one time, in the order of
  // planning.
  void At(TimePoint at, Happening what);
  void After(Duration delay, Happening what) { At(now_ + delay, std::move(what)); }
  // Lets the next thing happen. False: there is none up to `limit`, which then is the present.
  bool RunNext(TimePoint limit);

 private:
  struct Entry {
    TimePoint at;
    uint64_t order;
    Happening what;
  };
  static bool IsLater(const Entry& a, const Entry& b) {
    return a.at != b.at ? a.at > b.at : a.order > b.order;
  }

  TimePoint now_{};
  uint64_t planned_ = 0;
  uint64_t steps_ = 0;
  std::vector<Entry> heap_;
};

// One process's monotonic clock. Its rate differs from true time by `ppm` millionths.
class SimClock {
 public:
  SimClock() = default;
  SimClock(Duration offset, int ppm) : offset_(offset), ppm_(ppm) {}
  TimePoint Read(TimePoint true_time) const;
  // The first true time at which the clock reads `local` or more.
  TimePoint WhenReads(TimePoint local) const;
  // By how much the two may disagree on how long something took that took `duration`.
  Duration Blur(const SimClock& other, Duration duration) const;

 private:
  Duration offset_{0};
  int ppm_ = 0;
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_TIMELINE_H_
