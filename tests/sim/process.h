// A process of the simulator: it runs, is stopped, or is dead.
#ifndef DDPRUN_TESTS_SIM_PROCESS_H_
#define DDPRUN_TESTS_SIM_PROCESS_H_

#include <functional>
#include <optional>
#include <vector>

#include "tests/sim/timeline.h"

namespace ddprun::sim {

class Process {
 public:
  Process(Timeline& timeline, SimClock clock) : timeline_(timeline), clock_(clock) {}
  virtual ~Process() = default;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  bool is_alive() const { return is_alive_; }
  bool is_paused() const { return is_paused_; }
  virtual void Pause() { is_paused_ = true; }
  // What came meanwhile is found now.
  virtual void Resume();
  // SIGKILL: nothing of it runs again.
  virtual void Die();

 protected:
  // Runs `work` in the process: now, or when it is continued, or never.
  void Enter(std::function<void()> work);
  // Runs after every piece of work, and sees to the next timer.
  virtual void AfterWork() = 0;
  // One timer: calls AfterWork at `local`, by the process's clock, or later. None: it is taken
  // back.
  void ArmTimer(std::optional<TimePoint> local);
  TimePoint now() const { return clock_.Read(timeline_.now()); }

  Timeline& timeline_;
  const SimClock clock_;

 private:
  bool is_alive_ = true;
  bool is_paused_ = false;
  std::vector<std::function<void()>> backlog_;
  uint64_t timer_ = 0;  // number of the newest
  std::optional<TimePoint> armed_for_;
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_PROCESS_H_
