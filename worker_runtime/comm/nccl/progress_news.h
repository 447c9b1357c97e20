// When a rank tells the others how far it is. [pure]
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_PROGRESS_NEWS_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_PROGRESS_NEWS_H_

#include <chrono>
#include <cstdint>
#include <optional>

namespace ddp::internal {

// A rank that is quick tells nothing: that costs nothing while all is well. One that stays where it
// is for long tells it once, whether it waits in an operation or does something else after one; and
// then it tells where it goes next, at once, since others may be waiting for it. So whoever is not
// known to have come to an operation has not: not even a rank that has been through it, does not
// wait for anybody, and meets one that hangs there.
class ProgressNews {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Place {
    uint64_t sequence = 0;    // of an operation; 0: none yet
    bool is_waiting = false;  // in it; otherwise it has been through it
    friend bool operator==(const Place&, const Place&) = default;
  };

  // Whether to tell `place` now. `is_stuck`: it waits there for too long. Where nothing is under
  // way, `patience` is what is too long.
  bool ShouldTell(const Place& place, TimePoint now, bool is_stuck,
                  std::chrono::milliseconds patience);
  // Whether others may be waiting for news.
  bool is_awaited() const { return is_awaited_; }
  uint64_t told() const { return told_; }

 private:
  std::optional<Place> place_;
  TimePoint since_{};
  bool is_awaited_ = false;
  uint64_t told_ = 0;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_PROGRESS_NEWS_H_
