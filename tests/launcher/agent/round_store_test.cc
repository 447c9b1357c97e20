#include "launcher/agent/round_store.h"

#include <doctest/doctest.h>

#include <chrono>

#include "ddp/store.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<ddp::Store> Client(uint16_t port) {
  auto client = ddp::Store::Connect("127.0.0.1", port, 20s);
  REQUIRE_MESSAGE(client.ok(), client.status().ToString());
  return *std::move(client);
}

TEST_CASE("round store: a straggler of the old round cannot write into the new one") {
  RoundStore store(RoundStore::Reach::kThisHost);
  REQUIRE(store.Renew().ok());
  const uint16_t old_port = store.port();
  const auto straggler = Client(old_port);
  REQUIRE(straggler->Set("key", "old").ok());

  REQUIRE(store.Renew().ok());
  // A set has no reply: that its connection is gone shows at the next answer.
  const bool is_sent = straggler->Set("key", "late").ok();
  const bool is_answered = straggler->Get("key", 1s).ok();
  CAPTURE(is_sent);
  CHECK_FALSE(is_answered);
  // One that connects only now knows no port but the old one's.
  if (store.port() != old_port) CHECK_FALSE(ddp::Store::Connect("127.0.0.1", old_port, 200ms).ok());
  const auto worker = Client(store.port());
  const auto is_there = worker->Check({"key"});
  REQUIRE(is_there.ok());
  CHECK_FALSE(*is_there);
}

TEST_CASE("round store: a node that never serves one has no port and takes no connection") {
  RoundStore store(RoundStore::Reach::kNone);
  REQUIRE(store.Renew().ok());
  CHECK(store.port() == 0);
  store.Adopt(UniqueFd());
}

}  // namespace
}  // namespace ddprun::launcher
