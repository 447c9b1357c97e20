#include "worker_runtime/comm/messages/message_matching.h"

#include <doctest/doctest.h>

namespace ddp::internal {
namespace {

using Offer = MessageMatching::Offer;
using Receive = MessageMatching::Receive;

TEST_CASE("matching: messages of one rank and tag go to receives in their order") {
  MessageMatching matching;
  CHECK(!matching.Add({.source = 1, .tag = 7, .bytes = 10, .id = 1}).has_value());
  CHECK(!matching.Add({.source = 1, .tag = 7, .bytes = 20, .id = 2}).has_value());
  CHECK(matching.Post({.source = 1, .tag = 7, .id = 100})->id == 1);
  CHECK(matching.Post({.source = 1, .tag = 7, .id = 101})->bytes == 20);
  CHECK(!matching.Post({.source = 1, .tag = 7, .id = 102}).has_value());
  CHECK(!matching.Post({.source = 1, .tag = 7, .id = 103}).has_value());
  CHECK(matching.Add({.source = 1, .tag = 7, .bytes = 30, .id = 3})->id == 102);
  CHECK(matching.Add({.source = 1, .tag = 7, .bytes = 40, .id = 4})->id == 103);
}

TEST_CASE("matching: another tag and another rank are passed over") {
  MessageMatching matching;
  CHECK(!matching.Add({.source = 1, .tag = 7, .bytes = 1, .id = 1}).has_value());
  CHECK(!matching.Add({.source = 2, .tag = 8, .bytes = 1, .id = 1}).has_value());
  CHECK(!matching.Post({.source = 1, .tag = 8, .id = 100}).has_value());
  CHECK(matching.Post({.source = 2, .tag = 8, .id = 101})->source == 2);
  CHECK(matching.Post({.source = 1, .tag = 7, .id = 102})->source == 1);
  CHECK(matching.Add({.source = 1, .tag = 8, .bytes = 1, .id = 2})->id == 100);
}

TEST_CASE("matching: a receive from any rank takes the oldest message of its tag") {
  MessageMatching matching;
  CHECK(!matching.Add({.source = 3, .tag = 0, .bytes = 1, .id = 9}).has_value());
  CHECK(!matching.Add({.source = 1, .tag = 0, .bytes = 1, .id = 9}).has_value());
  CHECK(matching.Post({.source = kAnySource, .tag = 0, .id = 100})->source == 3);
  CHECK(matching.Post({.source = kAnySource, .tag = 0, .id = 101})->source == 1);
  CHECK(!matching.Post({.source = kAnySource, .tag = 0, .id = 102}).has_value());
  CHECK(!matching.Post({.source = 1, .tag = 0, .id = 103}).has_value());
  // The older receive, though the other names the rank.
  CHECK(matching.Add({.source = 1, .tag = 0, .bytes = 1, .id = 10})->id == 102);
}

TEST_CASE("matching: what is given up goes to nobody") {
  MessageMatching matching;
  CHECK(!matching.Add({.source = 1, .tag = 0, .bytes = 1, .id = 5}).has_value());
  CHECK(!matching.Withdraw(1, 6));
  CHECK(!matching.Withdraw(2, 5));
  CHECK(matching.Withdraw(1, 5));
  CHECK(!matching.Post({.source = 1, .tag = 0, .id = 100}).has_value());
  matching.Cancel(100);
  CHECK(!matching.Add({.source = 1, .tag = 0, .bytes = 1, .id = 7}).has_value());
  CHECK(matching.OffersOf(1) == 1);
}

TEST_CASE("matching: a receive that is posted again has its old place") {
  MessageMatching matching;
  CHECK(!matching.Add({.source = 1, .tag = 0, .bytes = 1, .id = 1}).has_value());
  CHECK(matching.Post({.source = 1, .tag = 0, .id = 100})->id == 1);
  CHECK(!matching.Post({.source = 1, .tag = 0, .id = 101}).has_value());
  CHECK(!matching.Post({.source = 1, .tag = 0, .id = 100}).has_value());
  CHECK(matching.Add({.source = 1, .tag = 0, .bytes = 1, .id = 2})->id == 100);
  CHECK(matching.Add({.source = 1, .tag = 0, .bytes = 1, .id = 3})->id == 101);
}

TEST_CASE("matching: a lost connection takes its offers along, a lost rank those who wait for it") {
  MessageMatching matching;
  CHECK(!matching.Add({.source = 1, .tag = 0, .bytes = 1, .id = 1}).has_value());
  CHECK(!matching.Add({.source = 2, .tag = 0, .bytes = 1, .id = 1}).has_value());
  CHECK(!matching.Post({.source = 1, .tag = 5, .id = 100}).has_value());
  CHECK(!matching.Post({.source = 2, .tag = 5, .id = 101}).has_value());
  CHECK(!matching.Post({.source = kAnySource, .tag = 5, .id = 102}).has_value());
  matching.DropOffers(1);
  CHECK(matching.OffersOf(1) == 0);
  CHECK(matching.OffersOf(2) == 1);
  CHECK(matching.DropReceives(1) == std::vector<uint64_t>{100});
  CHECK(matching.Add({.source = 1, .tag = 5, .bytes = 1, .id = 2})->id == 102);
}

}  // namespace
}  // namespace ddp::internal
