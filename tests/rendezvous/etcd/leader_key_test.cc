#include "rendezvous/etcd/leader_key.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun::rendezvous {
namespace {

TEST_CASE("leader key: what was written is what is read, names and IPv6 addresses included") {
  for (const Leader& leader : {Leader{"10.0.0.1", 41234, "node-a"}, Leader{"fe80::1", 1, "b"},
                               Leader{"host.cluster", 65535, "two words"}}) {
    CHECK(DecodeLeader(EncodeLeader(leader)) == leader);
  }
  CHECK(EncodeLeader({"::1", 80, "n"}) == "ddprun 1 [::1]:80 n");
}

TEST_CASE("leader key: what ddprun would not have written is nobody's") {
  const std::string good = EncodeLeader({"10.0.0.1", 41234, "a"});
  REQUIRE(DecodeLeader(good));
  for (const std::string& text :
       {std::string(), std::string("hello"), std::string("ddprun 1 10.0.0.1:41234"),
        std::string("ddprun 2 10.0.0.1:41234 a"), std::string("ddprun 1 10.0.0.1:0 a"),
        std::string("ddprun 1 10.0.0.1:99999 a"), std::string("ddprun 1 10.0.0.1 a"),
        std::string("ddprun 1 :41234 a"), std::string("ddprun 1 10.0.0.1:041234 a"),
        std::string("ddprun 1 10.0.0.1:41234 a\x1b[31m"), good + std::string(2000, 'x')}) {
    CHECK_FALSE_MESSAGE(DecodeLeader(text), text);
  }
}

TEST_CASE("leader key: two runs never share a key") {
  CHECK(LeaderKeyOf("/ddprun", "a") == "/ddprun/a/leader");
  CHECK(JobKeyOf("/ddprun", "a") == "/ddprun/a/job");
  CHECK(LeaderKeyOf("/ddprun", "a") != JobKeyOf("/ddprun", "a/leader"));
  CHECK(LeaderKeyOf("/ddprun", "a/leader") != LeaderKeyOf("/ddprun", "a"));
}

}  // namespace
}  // namespace ddprun::rendezvous
