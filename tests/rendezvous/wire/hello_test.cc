#include "rendezvous/wire/hello.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun::rendezvous {
namespace {

TEST_CASE("hello: what is too long is foreign, in whatever pieces it comes") {
  const std::string text = "ddprun/1 run " + std::string(kMaxHelloReplyBytes, 'j') + "\n";
  Hello hello;
  CHECK(ParseHelloReply(text.substr(0, kMaxHelloReplyBytes - 1), hello) ==
        HelloAnswer::kIncomplete);
  CHECK(ParseHelloReply(text.substr(0, kMaxHelloReplyBytes), hello) == HelloAnswer::kForeign);
  CHECK(ParseHelloReply(text, hello) == HelloAnswer::kForeign);
}

TEST_CASE("hello: the longest that is said is understood") {
  const std::string run_id(1000, 'j');
  const std::string text = MakeHelloReply({.run_id = run_id, .is_apart = true});
  CHECK(text.size() <= kMaxHelloReplyBytes);
  Hello hello;
  CHECK(ParseHelloReply(text, hello) == HelloAnswer::kHello);
  CHECK(hello.is_apart);
  CHECK(Serves(hello, run_id));
}

}  // namespace
}  // namespace ddprun::rendezvous
