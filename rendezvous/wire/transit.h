// How long an agent's messages were under way, by what they say of the agent's clock. [pure]
#ifndef DDPRUN_RENDEZVOUS_WIRE_TRANSIT_H_
#define DDPRUN_RENDEZVOUS_WIRE_TRANSIT_H_

#include "rendezvous/base/time.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// Adds it to the age of what has one.
void AddWait(Duration waited, Event& event);

// Of one stream, which keeps its order. A report says how old it was when it was sent. While the
// coordinator does not run, or the network holds back what was sent, it grows older on its way.
// Nobody knows how far apart the two clocks are, so what counts is how much longer a message took
// than the fastest of the last kWindow to 2 * kWindow: longer ago is useless, since clocks drift.
class Transit {
 public:
  static constexpr Duration kWindow = std::chrono::seconds(10);
  // No message is taken to have waited for longer.
  static constexpr Duration kMost = std::chrono::hours(24);

  // Notes the next message of the stream, and adds to the age of what has one the time for which
  // it waited. `receipt`: our clock; `sent`: the agent's, 0 if it did not say, which changes
  // nothing.
  void Correct(TimePoint receipt, Duration sent, Event& event);

 private:
  Duration Excess(TimePoint receipt, Duration sent);

  Duration last_sent_{0};  // 0: nothing was noted yet
  // The shortest ways, by the difference of the clocks, and since when the newer one is counted.
  // They are exchanged only when a message comes, so that a long silence costs no knowledge.
  Duration older_{0};
  Duration newer_{0};
  TimePoint newer_since_{};
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_TRANSIT_H_
