// What a worker's page says, as values, and what follows from it. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_RANK_COUNTS_H_
#define DDPRUN_LAUNCHER_STATUS_RANK_COUNTS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "launcher/status/snapshot.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

struct GroupCounts {
  uint64_t key = 0;
  uint32_t rank = 0, size = 0;
  uint64_t called = 0, done = 0;
  int64_t called_at_ns = 0, done_at_ns = 0, busy_since_ns = 0;
  uint64_t op = 0;
  std::string name;
};

// Since the pass's zero. One may stand for several buckets (BucketsOfWord).
struct BucketCounts {
  uint32_t start_us = 0, end_us = 0;
};

// As the worker wrote it: any value may stand anywhere.
struct RankCounts {
  uint64_t phase = 0;
  int64_t phase_since_ns = 0;
  uint64_t steps = 0;
  int64_t step = 0, step_at_ns = 0, samples = 0, first_step_at_ns = 0, longest_step_ns = 0;
  int64_t step_time_ns = 0, waited_ns = 0, exposed_ns = 0;
  int64_t evaluation_ns = 0, checkpoint_ns = 0;
  // Of one backward pass; no word where none is told.
  uint32_t buckets = 0;
  int64_t backward_ns = 0;
  std::vector<BucketCounts> bucket_words;
  std::vector<GroupCounts> groups;
};

struct RankProgress {
  std::optional<int64_t> step = {};  // the last; empty: none, or one that nobody counts
  Duration time{0};  // from the worker's start to that step's end; without one to now
};

// The counts of one worker over time. Fed about once a second.
class RankHistory {
 public:
  // The rates are those of the last 10 s, or of the last step where steps are longer.
  static constexpr Duration kWindow = std::chrono::seconds(10);

  // A worker begins.
  void Reset(TimePoint started_at);
  void Look(TimePoint now, RankCounts counts);
  // What the last look saw, its ages as of `now`: what is not of this machine's time, or
  // contradicts itself, is unknown.
  void Fill(TimePoint now, RankView& view) const;
  // By what the page says now.
  RankProgress Progress(TimePoint now, const RankCounts& counts) const;
  const RankCounts& last() const { return last_; }

 private:
  struct Mark {
    TimePoint at;
    uint64_t steps = 0;
    int64_t samples = 0, step_time_ns = 0, waited_ns = 0, exposed_ns = 0;
  };
  void FillPhase(TimePoint now, int64_t lived_ns, RankView& view) const;
  void FillRates(RankView& view) const;
  void FillBuckets(int64_t lived_ns, RankView& view) const;

  TimePoint started_at_{};
  RankCounts last_;
  std::deque<Mark> marks_;  // where `steps` had changed, the oldest first
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_RANK_COUNTS_H_
