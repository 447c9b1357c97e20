// How one worker is stopped: which signal goes to whom, and when. [pure]
#ifndef DDPRUN_LAUNCHER_PROCESS_WORKER_STOP_H_
#define DDPRUN_LAUNCHER_PROCESS_WORKER_STOP_H_

#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// The leader, which is the process that ddprun has started, hears of the stop first, and alone: it
// may need what it has started (the processes of a DataLoader) until its checkpoint is written. The
// rest of its process group hears of it when the leader has ended or half of the grace is over. At
// the end of the grace all are killed. A leader that is a shell may wait for its program before it
// runs its trap: that program hears of the stop with it (foreground.h).
//
// SIGINT and SIGQUIT go to the whole group at once, as a terminal sends them: a shell that waits
// for its command does not end of a SIGINT that it alone gets, and bash of no SIGQUIT.
class WorkerStop {
 public:
  // kHelpers: those of the group besides the leader.
  enum class Receiver { kNobody, kLeader, kGroup, kHelpers };
  struct Order {
    Receiver receiver = Receiver::kNobody;
    int signal = 0;
    friend bool operator==(const Order&, const Order&) = default;
  };

  // The worker is told to stop. Again: the earlier end of grace counts, and the same signal is not
  // sent again, as some programs take a second SIGTERM as "at once".
  // `has_it`: the worker got it from elsewhere, with all that it has started. Should it live on, it
  // is told at half of the grace all the same: who sent it is known, and not whom it reached. What
  // outlives its leader is told once more, at once: nothing waits for it any more.
  Order Tell(TimePoint now, int signal, Duration grace, bool has_it = false);
  // The leader has ended; `grace`: for what it has left, where nobody has told it to stop. They are
  // told when `patience` is over.
  Order LeaderEnded(TimePoint now, Duration grace, Duration patience = Duration{0});
  Order Kill();
  // What is due by now. `has_program_it`: what the leader waits for has the signal as well, and
  // runs. It is the program, so that what it has started is told when the leader has ended.
  Order TimePassed(TimePoint now, bool has_program_it = false);

  // Time in which the worker could not run is no part of its grace.
  void Postpone(Duration pause);

  // When TimePassed next has an order; TimePoint::max(): never.
  TimePoint next_at() const;
  bool is_kill_due(TimePoint now) const { return !is_killed_ && kill_at_ <= now; }
  bool is_killed() const { return is_killed_; }
  int signal() const { return signal_; }  // the one that it was told to stop by; 0: none

 private:
  static constexpr TimePoint kNever = TimePoint::max();

  Order ToGroup(int signal);

  int signal_ = 0;
  bool has_leader_ended_ = false;
  bool is_group_told_ = false;
  bool is_leader_told_ = false;  // by us
  bool is_killed_ = false;
  TimePoint group_at_ = kNever;
  TimePoint kill_at_ = kNever;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_WORKER_STOP_H_
