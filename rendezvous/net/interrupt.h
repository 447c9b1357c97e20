// Ends the waits of one thread from another, those in poll included.
#ifndef DDPRUN_RENDEZVOUS_NET_INTERRUPT_H_
#define DDPRUN_RENDEZVOUS_NET_INTERRUPT_H_

#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::rendezvous {

class Interrupt {
 public:
  Interrupt();

  // From any thread, once and for all.
  void Set() const;
  bool is_set() const { return !Wait(Duration{0}); }
  // Becomes readable when it is set.
  int fd() const { return event_.get(); }
  // False: it was set before `timeout` had passed.
  bool Wait(Duration timeout) const;

  enum class Ready { kFd, kTimeout, kInterrupted };
  // Waits until `fd` has one of poll's `events` (errors count as ready) or the deadline comes.
  Ready WaitForFd(int fd, short events, TimePoint deadline) const;

 private:
  UniqueFd event_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_INTERRUPT_H_
