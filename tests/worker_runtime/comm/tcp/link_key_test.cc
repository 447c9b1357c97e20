// Two ends of a connection prove that they have the round's key, and agree on what they seal with.
#include "worker_runtime/comm/tcp/link_key.h"

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <string>

namespace ddp::internal {
namespace {

constexpr Nonce kGroup = {1, 2, 3};
constexpr Nonce kAnswering = {4, 5, 6};

std::shared_ptr<const LinkKey> KeyOf(char byte) {
  auto key = LinkKey::Make(std::string(32, byte));
  REQUIRE_MESSAGE(key.ok(), key.status().ToString());
  return *std::move(key);
}

// What `from` seals for `to` and that opens, or "broken".
std::string Carry(SealedChannel& from, SealedChannel& to, const std::string& text) {
  from.out.Seal(text, "");
  const std::string_view pending = from.out.Pending();
  const std::span<char> room = to.in.Room();
  std::memcpy(room.data(), pending.data(), pending.size());
  to.in.Received(pending.size());
  from.out.Sent(pending.size());
  std::string read(100, '\0');
  const std::optional<size_t> size = to.in.Read(read.data(), read.size());
  return size ? read.substr(0, *size) : "broken";
}

TEST_CASE("link key: both ends of a connection prove it and understand each other") {
  const Hello hello = MakeSealedHello(3, 1);
  CHECK(IsSealed(hello));
  const LinkSecrets one(*KeyOf('k'), kGroup, hello, kAnswering);
  const LinkSecrets other(*KeyOf('k'), kGroup, hello, kAnswering);
  CHECK(one.IsAnswerProof(other.AnswerProof()));
  CHECK(other.IsHelloProof(one.HelloProof()));
  CHECK_FALSE(one.IsAnswerProof(other.HelloProof()));
  const auto connecting = one.Channel(false), listening = other.Channel(true);
  CHECK(Carry(*connecting, *listening, "there") == "there");
  CHECK(Carry(*listening, *connecting, "and back") == "and back");
  CHECK(Carry(*connecting, *listening, "again") == "again");
  // What one end has said is not what the other says.
  const auto mirror = one.Channel(false);
  CHECK(Carry(*one.Channel(false), *mirror, "there") == "broken");
}

TEST_CASE("link key: NCCL gets a key of its own from each round's") {
  CHECK(KeyOf('k')->ForNccl() == KeyOf('k')->ForNccl());
  CHECK(KeyOf('k')->ForNccl() != KeyOf('l')->ForNccl());
  Key round;
  round.fill('k');
  CHECK(KeyOf('k')->ForNccl() != round);
  const LinkSecrets link(*KeyOf('k'), kGroup, MakeSealedHello(3, 1), kAnswering);
  CHECK_FALSE(link.IsAnswerProof(KeyOf('k')->ForNccl()));
}

TEST_CASE("link key: a proof is worth nothing for another key, group, rank or connection") {
  const Hello hello = MakeSealedHello(3, 1);
  const LinkSecrets one(*KeyOf('k'), kGroup, hello, kAnswering);
  const Hello fresh = MakeSealedHello(3, 1);
  CHECK(fresh.nonce != hello.nonce);
  Hello to_other = hello, from_other = hello;
  to_other.to = 2;
  from_other.from = 4;
  const LinkSecrets others[] = {
      {*KeyOf('j'), kGroup, hello, kAnswering},    {*KeyOf('k'), Nonce{9}, hello, kAnswering},
      {*KeyOf('k'), kGroup, fresh, kAnswering},    {*KeyOf('k'), kGroup, hello, Nonce{7}},
      {*KeyOf('k'), kGroup, to_other, kAnswering}, {*KeyOf('k'), kGroup, from_other, kAnswering},
  };
  for (const LinkSecrets& other : others) {
    CHECK_FALSE(one.IsAnswerProof(other.AnswerProof()));
    CHECK_FALSE(one.IsHelloProof(other.HelloProof()));
    CHECK(Carry(*one.Channel(false), *other.Channel(true), "there") == "broken");
  }
}

TEST_CASE("link key: a plain hello is not one of a sealed link") {
  CHECK_FALSE(IsSealed(MakeHello(kGroup, 3, 1)));
}

}  // namespace
}  // namespace ddp::internal
