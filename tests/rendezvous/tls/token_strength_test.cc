#include "rendezvous/tls/token_strength.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

namespace ddprun::rendezvous {
namespace {

std::string Drawn(std::mt19937& random, const std::string& alphabet, size_t size) {
  std::string token;
  while (token.size() < size) token += alphabet[random() % alphabet.size()];
  return token;
}

TEST_CASE("token strength: what generators print is strong") {
  const std::string hex = "0123456789abcdef";
  const std::string base64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::string base32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
  std::mt19937 random(7);
  int weak = 0;
  for (int i = 0; i < 2000; ++i) {
    for (const std::string& token : {Drawn(random, hex, 64), Drawn(random, base64, 43)}) {
      CAPTURE(token);
      REQUIRE(EstimateTokenBits(token) >= kEnoughTokenBits);
    }
    // Letters of one case are mostly taken for words.
    if (EstimateTokenBits(Drawn(random, base32, 52)) < kEnoughTokenBits) ++weak;
  }
  CHECK(weak < 20);
  CHECK(EstimateTokenBits("3f2504e0-4f89-41d3-9a0c-0305e82c3301") >= kEnoughTokenBits);
  CHECK(EstimateTokenBits("9b1c7e02d4f8a6350e9c2b7d41f6a83c") == 128);
}

TEST_CASE("token strength: what people think of is weak") {
  for (const std::string token :
       {"correct-horse-battery-staple-2024", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "0123456789abcdef0123456789abcdef", "abcdefghijklmnopqrstuvwxyzabcdefghijklmn",
        "the_token_of_our_team_for_all_jobs", "12345678901234567890123456789012345",
        "31415926535897932384626433832795028841", "my-secret-token-my-secret-token-",
        "passwordpasswordpasswordpassword1", "x7Gqx7Gqx7Gqx7Gqx7Gqx7Gqx7Gqx7Gqx7Gq"}) {
    CAPTURE(token);
    CHECK(EstimateTokenBits(token) < kEnoughTokenBits);
  }
}

TEST_CASE("token strength: ten words of a list of 8,000 are strong, nine are not") {
  const std::string nine = "ivory-lunar-piston-quartz-ember-willow-cobalt-harbor-meadow";
  CHECK(EstimateTokenBits(nine) < kEnoughTokenBits);
  CHECK(EstimateTokenBits(nine + "-saddle") >= kEnoughTokenBits);
}

TEST_CASE("token strength: an empty text has none") { CHECK(EstimateTokenBits("") == 0); }

}  // namespace
}  // namespace ddprun::rendezvous
