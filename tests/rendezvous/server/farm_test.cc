// More nodes on one host than the port keeps strangers of, all of which come at once.
#include <doctest/doctest.h>

#include <list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/server/port_listener.h"
#include "tests/rendezvous/server/event_log.h"
#include "tests/rendezvous/server/over_sockets.h"
#include "tests/support/descriptors.h"
#include "tests/support/skip.h"

namespace ddprun::rendezvous {
namespace {

constexpr int kNodes = 300;
static_assert(kNodes > PortListener::kMaxStrangers);
constexpr size_t kDescriptorsOfNode = 12;  // at both of its ends, and some to spare

TEST_CASE("farm: of 300 nodes of one address that join at once each gets a place in one round") {
  if (testing::AllowManyDescriptors() < kNodes * kDescriptorsOfNode) {
    return testing::SkipTest("this process may not have enough descriptors");
  }
  Identity identity;
  SUBCASE("plain") {}
  SUBCASE("with a token") { identity = IdentityOf("the job's token"); }
  const Policy policy = TestPolicy(kNodes, kNodes);
  const auto coordinator = StartListening(policy, 0, identity);
  std::list<EventLog> logs;
  std::vector<std::unique_ptr<RendezvousClient>> clients;
  for (int i = 0; i < kNodes; ++i) {
    EventLog& log = logs.emplace_back();
    clients.push_back(identity == nullptr
                          ? Connect(coordinator->port(), policy, log)
                          : ConnectInSecret(coordinator->port(), policy, log, identity));
  }
  for (int i = 0; i < kNodes; ++i) {
    clients[i]->Join(TestNode("n" + std::to_string(i), static_cast<uint16_t>(4000 + i)));
  }
  std::set<int> places;
  for (EventLog& log : logs) {
    const auto assigned = log.Await<Assigned>();
    REQUIRE_MESSAGE(assigned, log.Text());
    CHECK(assigned->assignment.round == Round{1});
    CHECK(assigned->assignment.node_count == kNodes);
    places.insert(assigned->assignment.node_rank);
  }
  CHECK(places.size() == kNodes);
}

}  // namespace
}  // namespace ddprun::rendezvous
