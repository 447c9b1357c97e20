#include "rendezvous/tls/token_keys.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"

namespace ddprun::rendezvous {
namespace {

constexpr TlsPurpose kAll[] = {TlsPurpose::kGreeting, TlsPurpose::kRendezvous, TlsPurpose::kStore};
constexpr char kToken[] = "0123456789abcdef0123456789abcdef";

TokenKeys Keys(const std::string& token, const std::string& run_id) {
  const auto keys = TokenKeys::Of(token, run_id);
  REQUIRE(keys);
  return *keys;
}

std::string HexOf(const TokenKey& key) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(key.data()), TokenKey::kBytes});
}

// Another program's HKDF (Python's hmac) gave the answers: a release that derives others cannot
// speak to this one, and needs another protocol number.
TEST_CASE("token keys: the keys of a token and a run are the known ones") {
  const TokenKeys keys = Keys(kToken, "job1");
  const std::string run =
      absl::HexStringToBytes("7bfa5dd6b04c3356fbf5e9a27b2c9016246eacccd51a0c64fd6ff25beab80ccc");
  const auto greeting = keys.Offer(TlsPurpose::kGreeting);
  REQUIRE(greeting);
  CHECK(greeting->name == "ddprun/1");
  CHECK(HexOf(greeting->key) == "d2baa0f493d7acc9ce0ef2783f712ec68ca8286aac5e4cef664515ee8c594548");
  const auto rendezvous = keys.Offer(TlsPurpose::kRendezvous);
  REQUIRE(rendezvous);
  CHECK(rendezvous->name == "ddprun/2 rendezvous " + run);
  CHECK(HexOf(rendezvous->key) ==
        "574ddd33c6359064d7c131c97a95e0f83ddc84fda328a63ca227644725bb1717");
  const auto store = keys.Offer(TlsPurpose::kStore);
  REQUIRE(store);
  CHECK(store->name == "ddprun/2 store " + run);
  CHECK(HexOf(store->key) == "c356ad1ec828fe5530baa20969b0e1a4c7d2076b89d7fd513d2f14d7d2873669");
}

TEST_CASE("token keys: a server finds what a client of its run offers, for its purpose") {
  const TokenKeys client = Keys(kToken, "job1");
  for (const std::string run : {"job1", ""}) {  // empty: any
    for (const TlsPurpose purpose : kAll) {
      const auto offer = client.Offer(purpose);
      REQUIRE(offer);
      const auto found = Keys(kToken, run).Find(offer->name);
      REQUIRE(found);
      CHECK(found->purpose == purpose);
      CHECK(HexOf(found->key) == HexOf(offer->key));
    }
  }
}

TEST_CASE("token keys: of another run a server knows the greeting alone") {
  const TokenKeys client = Keys(kToken, "job1");
  const TokenKeys server = Keys(kToken, "job2");
  CHECK(server.Find(client.Offer(TlsPurpose::kGreeting)->name));
  CHECK_FALSE(server.Find(client.Offer(TlsPurpose::kRendezvous)->name));
  CHECK_FALSE(server.Find(client.Offer(TlsPurpose::kStore)->name));
}

TEST_CASE("token keys: no two purposes, runs or tokens share a key") {
  std::vector<std::string> keys;
  for (const std::string token : {kToken, "another token"}) {
    for (const std::string run : {"job1", "job2"}) {
      for (const TlsPurpose purpose : {TlsPurpose::kRendezvous, TlsPurpose::kStore}) {
        keys.push_back(HexOf(Keys(token, run).Offer(purpose)->key));
      }
    }
    keys.push_back(HexOf(Keys(token, "job1").Offer(TlsPurpose::kGreeting)->key));
  }
  CHECK(std::set<std::string>(keys.begin(), keys.end()).size() == keys.size());
}

TEST_CASE("token keys: a name that nobody offers has no key") {
  const TokenKeys any = Keys(kToken, "");
  const std::string run(TokenKey::kBytes, 'r');
  for (const std::string& name :
       {std::string(), std::string("ddprun/2"), std::string("ddprun/2 store "),
        "ddprun/2 store " + run + "r", "ddprun/2 stores " + run, "ddprun/3 store " + run,
        std::string("ddprun/1 ")}) {
    CAPTURE(name);
    CHECK_FALSE(any.Find(name));
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
