// Decides when Kubeflow Trainer is told how far the training is, and what. [pure]
#ifndef DDPRUN_LAUNCHER_PROGRESS_PROGRESS_CORE_H_
#define DDPRUN_LAUNCHER_PROGRESS_PROGRESS_CORE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/progress_word.h"

namespace ddprun::launcher {

struct ProgressNews {
  int percent = 0;                             // 0 to 100
  std::optional<int64_t> remaining_seconds{};  // none: not known

  friend bool operator==(const ProgressNews&, const ProgressNews&) = default;
};

// The body of the request. `observed_at`: "2025-01-31T12:00:00Z"; without it the server refuses.
std::string ProgressBody(const ProgressNews& news, const std::string& observed_at);

// What rank 0's program says goes up as it is: nothing is told before it has said something, nor
// again before that has changed, and it may fall after a restart. 100 is told when the job has
// succeeded and not before, as others do who report there. The time that is left follows from the
// steps of this round.
class ProgressCore {
 public:
  // At most one report in each `interval`, but for the last one.
  explicit ProgressCore(Duration interval) : interval_(interval) {}

  // A round with rank 0 on this node: the time before it says nothing of its speed.
  void BeginRound() { first_.reset(); }
  // When the program's word is looked at next.
  TimePoint next_look() const { return next_look_; }
  // What to tell now, if anything; Answered follows. REQUIRES: now never decreases.
  std::optional<ProgressNews> Look(TimePoint now, uint64_t word);
  // The same of the job's end, at once.
  std::optional<ProgressNews> End(uint64_t word, bool is_success) const;
  // How it went. What was not heard is told again. True: the user has to know, which is so for the
  // first failure of each code.
  bool Answered(const absl::Status& status);

 private:
  struct Sight {
    TimePoint at;
    double share = 0;
  };
  void See(TimePoint now, uint64_t word);

  const Duration interval_;
  TimePoint next_look_{};
  uint64_t word_ = 0;  // the one seen last
  bool is_untold_ = false;
  bool is_asking_ = false;
  std::optional<Sight> first_;  // of this round, or since it last fell
  Sight last_;
  std::set<absl::StatusCode> known_failures_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_PROGRESS_CORE_H_
