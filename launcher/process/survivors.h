// Workers that SIGKILL has not ended: for how long they are waited for, and what is said of them.
#ifndef DDPRUN_LAUNCHER_PROCESS_SURVIVORS_H_
#define DDPRUN_LAUNCHER_PROCESS_SURVIVORS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"

namespace ddprun::launcher {

struct Survivor {
  int rank = 0;
  pid_t pid = 0;
};

// "rank 3 (pid 71)".
std::string NameOf(const Survivor& survivor);

// "60 s", "200 ms".
std::string DurationText(Duration duration);

// Since when everything has been killed, and what follows if something lives on.
class SurvivorWatch {
 public:
  explicit SurvivorWatch(Duration give_up_after) : give_up_after_(give_up_after) {}

  void Reset();
  // Time in which they could not run does not count.
  void Postpone(Duration pause);
  // Whether everything has been killed for long enough. `is_all_killed`: it is.
  bool IsGivenUp(TimePoint now, bool is_all_killed);
  // What is to be said by now, once; "": nothing. "rank 3 (pid 71) lives on 5 s after SIGKILL: the
  // kernel holds it (in request_wait_answer), where ...". Reads /proc, nothing of it that the
  // kernel may hold back. Without survivors it speaks of what the workers left.
  std::string TakeNotice(TimePoint now, const std::vector<Survivor>& survivors);
  // Likewise, when they are.
  std::string GivenUpText(const std::vector<Survivor>& survivors) const;
  // When to ask again; TimePoint::max(): nothing is waited for.
  TimePoint next_at() const;

 private:
  const Duration give_up_after_;
  std::optional<TimePoint> since_;
  bool is_told_ = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_SURVIVORS_H_
