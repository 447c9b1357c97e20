// What the rendezvous machine obliges its driver to do, in the order given. [pure]
#ifndef DDPRUN_RENDEZVOUS_CORE_ACTION_H_
#define DDPRUN_RENDEZVOUS_CORE_ACTION_H_

#include <optional>
#include <string>
#include <variant>

#include "rendezvous/base/ids.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// What a refused node can do about it.
enum class Refusal {
  kFinal,     // nothing: it ends with exit code 121 and the message
  kJobOver,   // this job is closing: wait for the next one until join_timeout
  kOtherJob,  // its workers are of a job that is not this one: that one's coordinator is gone
};

// The node waits; one sentence for people, sent only when it changes:
// "1 of 2 nodes, waiting for 1 more". `deadline` is when the wait is given up, if it is.
struct TellWaiting {
  SessionId session;
  std::string reason;
  std::optional<TimePoint> deadline;
  friend bool operator==(const TellWaiting&, const TellWaiting&) = default;
};
struct Assign {
  SessionId session;
  Assignment assignment;
  friend bool operator==(const Assign&, const Assign&) = default;
};
// Stop the workers of `round`, then join again (or hear the verdict).
struct Drain {
  SessionId session;
  Epoch epoch;
  Round round;
  std::string reason;
  friend bool operator==(const Drain&, const Drain&) = default;
};
struct Conclude {
  SessionId session;
  Epoch epoch;
  Round round;
  Verdict verdict;
  friend bool operator==(const Conclude&, const Conclude&) = default;
};
// Send the refusal, then close the session.
struct Refuse {
  SessionId session;
  Refusal kind;
  std::string message;
  friend bool operator==(const Refuse&, const Refuse&) = default;
};
// Close the session without a word: a newer one of the same node replaced it.
struct CloseSession {
  SessionId session;
  friend bool operator==(const CloseSession&, const CloseSession&) = default;
};
// The verdict is known everywhere it can be; the coordinator may end. Given once.
struct Finish {
  friend bool operator==(const Finish&, const Finish&) = default;
};
// Make this durable, for the coordinator that is started after a crash; a newer one replaces it.
// With a verdict, say Recorded when it is done.
struct Record {
  JobInstance instance;
  Epoch epoch;
  int restart_count = 0;
  std::optional<Verdict> verdict;
  friend bool operator==(const Record&, const Record&) = default;
};

using Action =
    std::variant<TellWaiting, Assign, Drain, Conclude, Refuse, CloseSession, Finish, Record>;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_ACTION_H_
