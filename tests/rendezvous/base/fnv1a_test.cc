#include "rendezvous/base/fnv1a.h"

#include <doctest/doctest.h>

namespace ddprun {
namespace {

TEST_CASE("fnv1a: equals the published vectors, in one piece and in several") {
  CHECK(Fnv1a().value() == 0xcbf29ce484222325u);
  Fnv1a a;
  a.Add("a", 1);
  CHECK(a.value() == 0xaf63dc4c8601ec8cu);
  Fnv1a pieces;
  pieces.Add("foo", 3);
  pieces.Add("bar", 3);
  CHECK(pieces.value() == 0x85944171f73967e8u);
}

}  // namespace
}  // namespace ddprun
