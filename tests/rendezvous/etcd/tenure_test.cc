#include "rendezvous/etcd/tenure.h"

#include <doctest/doctest.h>

#include <chrono>

namespace ddprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kStart{seconds(1000)};

TEST_CASE("tenure: a leader tells for the lease's time from when it was asked for, and no longer") {
  const Tenure tenure(kStart, seconds(3));
  CHECK(tenure.MayTell(kStart));
  CHECK(tenure.MayTell(kStart + milliseconds(2999)));
  CHECK_FALSE(tenure.MayTell(kStart + seconds(3)));
}

TEST_CASE("tenure: a renewal counts from its sending, and one that comes late goes on") {
  Tenure tenure(kStart, seconds(3));
  tenure.Renew(kStart + seconds(1), seconds(3));
  CHECK(tenure.MayTell(kStart + milliseconds(3999)));
  CHECK_FALSE(tenure.MayTell(kStart + seconds(4)));
  CHECK(tenure.NextRenewal() == kStart + seconds(1) + Tenure::kRenewEvery);
  // A later one that was sent before the newest takes nothing back.
  tenure.Renew(kStart + milliseconds(500), seconds(3));
  CHECK(tenure.MayTell(kStart + milliseconds(3999)));
  // It was silent, and goes on.
  tenure.Renew(kStart + seconds(9), seconds(3));
  CHECK(tenure.MayTell(kStart + seconds(9)));
}

TEST_CASE("tenure: etcd may grant another time than was asked for") {
  Tenure tenure(kStart, seconds(5));
  CHECK(tenure.MayTell(kStart + milliseconds(4999)));
  tenure.Renew(kStart + seconds(1), seconds(1));
  CHECK_FALSE(tenure.MayTell(kStart + seconds(2)));
}

TEST_CASE("tenure: a failed renewal is tried again soon") {
  Tenure tenure(kStart, seconds(3));
  const TimePoint now = kStart + seconds(1);
  tenure.Fail(now);
  CHECK(tenure.NextRenewal() > now);
  CHECK(tenure.NextRenewal() < now + Tenure::kRenewEvery);
}

TEST_CASE("tenure: the place is lost by etcd's word at once, and by silence when agents look on") {
  Tenure tenure(kStart, seconds(3));
  const TimePoint end = kStart + seconds(3);
  CHECK_FALSE(tenure.IsLost(end + Tenure::kMaxPause - milliseconds(1)));
  CHECK(tenure.IsLost(end + Tenure::kMaxPause));
  tenure.Lose();
  CHECK(tenure.IsLost(kStart));
  CHECK_FALSE(tenure.MayTell(kStart));
  // No renewal brings it back.
  tenure.Renew(kStart, seconds(3));
  CHECK_FALSE(tenure.MayTell(kStart));
}

}  // namespace
}  // namespace ddprun::rendezvous
