#include "rendezvous/etcd/tenure.h"

#include <algorithm>

namespace ddprun::rendezvous {
namespace {

constexpr Duration kTryAgain = std::chrono::milliseconds(50);

}  // namespace

void Tenure::Renew(TimePoint asked_at, Duration lease) {
  asked_at_ = std::max(asked_at_, asked_at);
  lease_ = lease;
  next_ = asked_at + kRenewEvery;
}

void Tenure::Fail(TimePoint now) { next_ = now + kTryAgain; }

}  // namespace ddprun::rendezvous
