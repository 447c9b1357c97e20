// How long the leader of a job may lead: its lease in etcd, by its own clock. [pure]
//
// etcd counts a lease from when a renewal has reached it, which is after it was sent. So counted
// from the sending it ends here first: a leader that has heard of no renewal for that long says
// nothing more, whether it knows of another one or not, and may go on when a renewal comes through.
#ifndef DDPRUN_RENDEZVOUS_ETCD_TENURE_H_
#define DDPRUN_RENDEZVOUS_ETCD_TENURE_H_

#include <chrono>

#include "rendezvous/base/time.h"

namespace ddprun::rendezvous {

class Tenure {
 public:
  // What is asked for. A member of etcd that loses its leader needs an election, of a second or
  // two, before a lease is renewed again, and after it the new leader gives every lease its whole
  // time anew: where both leaders die at once, a job waits for the election and this.
  static constexpr Duration kLease = std::chrono::seconds(3);
  // Often enough that an election of etcd's finds most of the lease unused.
  static constexpr Duration kRenewEvery = std::chrono::milliseconds(500);
  // A leader that could say nothing for so long gives its place up: agents would not hear it for
  // as long as that of a coordinator that does not answer, and go on to look for another.
  static constexpr Duration kMaxPause = std::chrono::seconds(12);

  // `asked_at`: when the lease was asked for.
  Tenure(TimePoint asked_at, Duration lease) : asked_at_(asked_at), lease_(lease) {}

  // A renewal that was sent `asked_at` came through.
  void Renew(TimePoint asked_at, Duration lease);
  // Nothing came through, to be tried again.
  void Fail(TimePoint now);
  // By etcd's word.
  void Lose() { is_lost_ = true; }

  bool MayTell(TimePoint now) const { return !is_lost_ && now < asked_at_ + lease_; }
  bool IsLost(TimePoint now) const { return is_lost_ || now >= asked_at_ + lease_ + kMaxPause; }
  TimePoint NextRenewal() const { return next_; }

 private:
  TimePoint asked_at_;
  Duration lease_;
  TimePoint next_ = asked_at_ + kRenewEvery;
  bool is_lost_ = false;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_TENURE_H_
