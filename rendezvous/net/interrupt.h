// Ends the waits of one thread from another, those in poll included.
#ifndef DDPRUN_RENDEZVOUS_NET_INTERRUPT_H_
#define DDPRUN_RENDEZVOUS_NET_INTERRUPT_H_

#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::rendezvous {

class Interrupt {
 public:
  // Where no descriptor is left, is_open() is false and Set() wakes nobody.
  Interrupt();
  bool is_open() const { return event_.is_open(); }
  // Readable once it is set, for a poll of one's own.
  int fd() const { return event_.get(); }

  // From any thread, once and for all.
  void Set() const;
  bool is_set() const { return WaitForFd(-1, 0, TimePoint{}) == Ready::kInterrupted; }

  enum class Ready { kFd, kTimeout, kInterrupted };
  // Waits until `fd` has one of poll's `events` (errors count as ready) or the deadline comes.
  Ready WaitForFd(int fd, short events, TimePoint deadline) const;

 private:
  UniqueFd event_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_INTERRUPT_H_
