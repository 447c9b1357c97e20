#include "rendezvous/net/resolver.h"

#include <doctest/doctest.h>

namespace ddprun::rendezvous {
namespace {

TEST_CASE("resolver: an address is answered as it is, a name that cannot be is not found") {
  const Resolution literal = ResolveName("::1", 29400);
  REQUIRE(literal.outcome == Resolution::Outcome::kFound);
  CHECK(AddressText(literal.addresses.front()) == "[::1]:29400");
  CHECK(ResolveName("-not a name-", 1).outcome != Resolution::Outcome::kFound);
}

}  // namespace
}  // namespace ddprun::rendezvous
