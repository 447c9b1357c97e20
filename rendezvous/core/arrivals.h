// When nodes that come while a round runs are taken in, and which of them come too often. [pure]
#ifndef DDPRUN_RENDEZVOUS_CORE_ARRIVALS_H_
#define DDPRUN_RENDEZVOUS_CORE_ARRIVALS_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <string>

#include "rendezvous/base/time.h"

namespace ddprun::rendezvous {

// --scale-up: when a round that has room is restarted for nodes that have come. Equal on all nodes
// of a job.
enum class ScaleUp {
  kNow,       // at once: after a short last call
  kRestart,   // never: they are in the next round, whatever ends this one
  kGraceful,  // when the workers have ended after their step, as they were asked to
};
const char* ScaleUpName(ScaleUp scale_up);

// Why the workers of a node that all exited with 0 did so, as far as the stop flag tells.
enum class StopRead {
  kNo,         // none of them has read that it should stop: they were done
  kToScaleUp,  // for nodes that have come
  kToEnd,      // --preempt-signal, or the user's order
};

// From the first arrival until the round is restarted, unless --last-call is shorter: what starts
// nodes one after the other is done within seconds, and one restart takes all of them in.
inline constexpr Duration kArrivalCall = std::chrono::seconds(5);

// It keeps the restarts for arrivals and the hosts that flap, each for an hour. No record holds
// them.
class ArrivalLog {
 public:
  static constexpr Duration kWindow = std::chrono::hours(1);
  // One in five minutes on average: a job whose nodes come and go makes progress between them, and
  // a fleet that grows by one node at a time still grows.
  static constexpr size_t kMaxRestarts = 12;
  static constexpr Duration kFirstPause = std::chrono::seconds(30);
  static constexpr Duration kLongestPause = std::chrono::minutes(10);
  static constexpr size_t kMaxHosts = 1024;  // the one that went first makes room

  void NoteRestart(TimePoint now);
  // The first moment at which one more restart for arrivals is allowed.
  TimePoint NextRestartAt() const;

  // A node of the host has left a round, or is lost. It had come to the running job at `came`.
  void NoteGone(const std::string& host, TimePoint came, TimePoint now);
  // Until when a node of the host that comes now does not count: 30 s after it went once, and twice
  // as long each further time. `now`: it counts.
  TimePoint PausedUntil(const std::string& host, TimePoint now) const;

 private:
  // A host of which a node came, and went within the window.
  struct Flapping {
    int count = 0;
    TimePoint last;
  };
  std::deque<TimePoint> restarts_;  // the newest, at most kMaxRestarts
  std::map<std::string, Flapping> hosts_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_ARRIVALS_H_
