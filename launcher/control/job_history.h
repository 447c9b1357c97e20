// How fast a job was over the last hour, for a page that is opened late. [pure]
#ifndef DDPRUN_LAUNCHER_CONTROL_JOB_HISTORY_H_
#define DDPRUN_LAUNCHER_CONTROL_JOB_HISTORY_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "launcher/status/snapshot.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

class JobHistory {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(5);
  static constexpr size_t kMaxPoints = 720;  // an hour

  // REQUIRES: now never decreases.
  void Add(TimePoint now, const JobView& job);
  // [[age in seconds, round, samples a second, seconds of a step, exposed share], ...], the oldest
  // first; null: not known.
  std::string Json(TimePoint now) const;

 private:
  struct Point {
    TimePoint at;
    uint64_t round = 0;
    std::optional<double> samples_per_s, step_s, exposed_share;
  };
  std::deque<Point> points_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONTROL_JOB_HISTORY_H_
