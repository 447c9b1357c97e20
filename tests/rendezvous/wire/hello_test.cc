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

TEST_CASE("hello: a release says its protocol and version, in whatever pieces it comes") {
  const std::string text =
      MakeHelloReply({.run_id = "job1", .release = {.protocol = 7, .version = "3.4.5"}});
  CHECK(text == "ddprun/1 run job1\nrelease 7 3.4.5\n");
  Hello hello;
  for (size_t end = 1; end < text.size(); ++end) {
    CHECK(ParseHelloReply(text.substr(0, end), hello) == HelloAnswer::kIncomplete);
  }
  CHECK(ParseHelloReply(text + "more", hello) == HelloAnswer::kHello);
  CHECK(hello.run_id == "job1");
  CHECK(hello.release == Release{.protocol = 7, .version = "3.4.5"});
}

TEST_CASE("hello: one without a number is of the first protocol") {
  Hello hello;
  CHECK(ParseOldHelloReply("ddprun/1 apart job1\n", hello));
  CHECK(hello.is_apart);
  CHECK(hello.run_id == "job1");
  CHECK(hello.release == Release{.protocol = kFirstProtocol, .version = ""});
  for (const char* text : {"", "ddprun/1 run job1", "ddprun/1 run job1\nrel", "HTTP/1.1 400\n"}) {
    CAPTURE(text);
    CHECK_FALSE(ParseOldHelloReply(text, hello));
  }
}

TEST_CASE("hello: a second line that is no release is foreign") {
  Hello hello;
  for (const char* line :
       {"x", "release\n", "release 1\n", "release 0 a\n", "release -1 a\n", "release 1x a\n",
        "release 65536 a\n", "release  a\n", "release 99999999999999999999 a\n"}) {
    CAPTURE(line);
    CHECK(ParseHelloReply(std::string("ddprun/1 run job1\n") + line, hello) ==
          HelloAnswer::kForeign);
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
