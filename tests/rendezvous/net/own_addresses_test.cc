#include "rendezvous/net/own_addresses.h"

#include <doctest/doctest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/core/rank_assignment.h"
#include "tests/support/skip.h"

namespace ddprun::rendezvous {
namespace {

using testing::SkipTest;
using Hosts = std::vector<std::string>;

Hosts OfTexts(const Hosts& texts) {
  std::vector<SocketAddress> addresses;
  for (const std::string& text : texts) addresses.push_back(*ParseIp(text, 29400));
  return HostsToListenOn(addresses);
}

// An address of this machine that others reach; empty: it has none.
std::string OwnAddress() {
  for (const std::string& ip : EveryOwnAddress()) {
    if (!IsLoopback(ip)) return ip;
  }
  return "";
}

TEST_CASE("own addresses: loopback and what is another machine's leave all addresses") {
  CHECK(OfTexts({}) == Hosts());
  CHECK(OfTexts({"127.0.1.1", "::1"}) == Hosts());
  CHECK(OfTexts({"198.51.100.1"}) == Hosts());
}

TEST_CASE("own addresses: one that others reach leaves itself and loopback") {
  const std::string own = OwnAddress();
  if (own.empty()) return SkipTest("this machine has loopback alone");
  CHECK(OfTexts({own}) == Hosts{"127.0.0.1", "127.0.1.1", "::1", own});
  CHECK(OfTexts({"198.51.100.1", own, "127.0.0.9", own}) ==
        Hosts{"127.0.0.1", "127.0.1.1", "::1", own, "127.0.0.9"});
}

TEST_CASE("own addresses: a name stands for its addresses, and an address needs no resolver") {
  const std::string own = OwnAddress();
  if (own.empty()) return SkipTest("this machine has loopback alone");
  int asked = 0;
  const Resolver resolver = [&](const std::string& host, uint16_t port) {
    ++asked;
    CHECK(host == "node1");
    return Resolution{Resolution::Outcome::kFound, "", {*ParseIp(own, port)}};
  };
  CHECK(HostsToListenOn(own, resolver) == OfTexts({own}));
  CHECK(asked == 0);
  CHECK(HostsToListenOn("node1", resolver) == OfTexts({own}));
  CHECK(asked == 1);
}

TEST_CASE("own addresses: a resolver that hangs is not waited for") {
  const auto end = std::make_shared<std::promise<void>>();
  const std::shared_future<void> hangs = end->get_future().share();
  const Resolver resolver = [hangs](const std::string&, uint16_t) {
    hangs.wait();
    return Resolution{};
  };
  CHECK(HostsToListenOn("node1", resolver) == Hosts());
  end->set_value();
}

}  // namespace
}  // namespace ddprun::rendezvous
