#include "rendezvous/core/rank_assignment.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>

#include "tests/rendezvous/core/builders.h"

namespace ddprun::rendezvous {
namespace {

using namespace testing;  // NOLINT: builders

Member Make(const std::string& host, int previous_rank = -1, int given_rank = -1) {
  Member member;
  member.info.id = NodeId{"id-" + host};
  member.info.host = host;
  member.info.node_rank = given_rank;
  member.info.store_port = 5000;
  member.previous_rank = previous_rank;
  member.source_addr = "10.0.0.9";
  member.accepted_addr = "10.0.0.1";
  return member;
}

Members Pointers(const std::deque<Member>& members) {
  Members pointers;
  for (const Member& member : members) pointers.push_back(&member);
  return pointers;
}

std::vector<std::string> Hosts(const Members& members) {
  std::vector<std::string> hosts;
  for (const Member* member : members) hosts.push_back(member->info.host);
  return hosts;
}

using Names = std::vector<std::string>;

TEST_CASE("ranks: host names are compared with their numbers as numbers") {
  CHECK(HostNameLess("node2", "node10"));
  CHECK(!HostNameLess("node10", "node2"));
  CHECK(HostNameLess("node2-gpu9", "node2-gpu10"));
  CHECK(HostNameLess("a", "b"));
  CHECK(HostNameLess("node", "node1"));
  CHECK(HostNameLess("rack1", "racka"));
  CHECK(HostNameLess("n99999999999999999998", "n99999999999999999999"));
  CHECK(HostNameLess("n1", "n02"));
  CHECK(HostNameLess("node9", "node010"));
  CHECK(!HostNameLess("node2", "node2"));
  // A total order: equal as numbers, told apart as text, one way only.
  CHECK(HostNameLess("n01", "n1") != HostNameLess("n1", "n01"));
}

TEST_CASE("ranks: a first round is numbered by host, then by id") {
  std::deque<Member> members = {Make("node10"), Make("node2"), Make("node1"), Make("node1")};
  members[2].info.id = NodeId{"z"};
  const Members order = OrderByRank(Pointers(members), false);
  CHECK(Hosts(order) == Names{"node1", "node1", "node2", "node10"});
  CHECK(order[0]->info.id == NodeId{"id-node1"});
}

TEST_CASE("ranks: the order of arrival changes nothing") {
  const std::deque<Member> members = {Make("a", 1), Make("b", -1, 3), Make("c", 0), Make("d"),
                                      Make("e", 1)};
  Members pointers = Pointers(members);
  std::sort(pointers.begin(), pointers.end());
  const Names expected = Hosts(OrderByRank(pointers, false));
  CHECK(expected == Names{"c", "a", "d", "b", "e"});
  int permutations = 0;
  do {
    CHECK(Hosts(OrderByRank(pointers, false)) == expected);
    ++permutations;
  } while (std::next_permutation(pointers.begin(), pointers.end()));
  CHECK(permutations == 120);
}

TEST_CASE("ranks: the endpoint's node is rank 0, whatever was or was wished") {
  std::deque<Member> members = {Make("a", 0), Make("b", -1, 0), Make("z", 2)};
  members[2].info.is_endpoint_node = true;
  CHECK(Hosts(OrderByRank(Pointers(members), false)) == Names{"z", "b", "a"});
}

TEST_CASE("ranks: those that stay keep their rank, a newcomer fills the hole") {
  const std::deque<Member> members = {Make("c", 2), Make("new"), Make("a", 0)};
  CHECK(Hosts(OrderByRank(Pointers(members), false)) == Names{"a", "new", "c"});
}

TEST_CASE("ranks: a rank beyond a shrunken world is given up") {
  const std::deque<Member> members = {Make("c", 3), Make("a", 1)};
  CHECK(Hosts(OrderByRank(Pointers(members), false)) == Names{"c", "a"});
}

TEST_CASE("ranks: static ranks are taken as given, the endpoint's too") {
  std::deque<Member> members = {Make("a", 0, 2), Make("b", 1, 0), Make("c", 2, 1)};
  members[0].info.is_endpoint_node = true;
  CHECK(Hosts(OrderByRank(Pointers(members), true)) == Names{"b", "c", "a"});
}

TEST_CASE("ranks: above max the endpoint's node, then those of the last round, then the earliest") {
  std::deque<Member> members = {Make("late"), Make("early"), Make("old", 1), Make("end")};
  for (size_t i = 0; i < members.size(); ++i) members[i].arrival = 10 - i;
  members[3].info.is_endpoint_node = true;
  members[3].arrival = 99;
  CHECK(Hosts(SelectMembers(Pointers(members), 3)) == Names{"end", "old", "early"});
  CHECK(SelectMembers(Pointers(members), 9).size() == 4);
}

TEST_CASE("ranks: intervals are contiguous and role ranks count within the role") {
  std::deque<Member> members = {Make("a"), Make("b"), Make("c")};
  members[0].info.local_world_size = 2;
  members[1].info.local_world_size = 1;
  members[1].info.role = "reader";
  members[2].info.local_world_size = 3;
  members[1].info.store_port = 1;
  const std::vector<Assignment> all = AssignRanks(Pointers(members), TestPolicy(1, 3));
  REQUIRE(all.size() == 3);
  for (size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].node_rank == static_cast<int>(i));
    CHECK(all[i].node_count == 3);
    CHECK(all[i].world_size == 6);
    CHECK(all[i].master_port == 5000);
    CHECK(!all[i].coordinator_is_member);
  }
  CHECK(all[1].first_rank == 2);
  CHECK(all[2].first_rank == 3);
  CHECK(all[1].role_first_rank == 0);
  CHECK(all[1].role_world_size == 1);
  CHECK(all[2].role_first_rank == 2);
  CHECK(all[2].role_world_size == 5);
}

TEST_CASE("ranks: static assignments carry the given address") {
  Policy policy = TestPolicy(1, 1);
  policy.is_static = true;
  policy.static_master_addr = "head";
  policy.static_master_port = 29500;
  std::deque<Member> members = {Make("a", -1, 0)};
  const std::vector<Assignment> all = AssignRanks(Pointers(members), policy);
  CHECK(all[0].master_addr == "head");
  CHECK(all[0].master_port == 29500);
}

TEST_CASE("address: v4-mapped is unwrapped, other IPv6 stays") {
  CHECK(UnwrapMappedAddress("::ffff:10.0.0.1") == "10.0.0.1");
  CHECK(UnwrapMappedAddress("fe80::1") == "fe80::1");
  CHECK(UnwrapMappedAddress("::ffff:1") == "::ffff:1");
  for (const char* loopback : {"127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1", "localhost"}) {
    CHECK(IsLoopback(loopback));
  }
  for (const char* other : {"10.0.0.1", "::ffff:10.0.0.1", "fe80::1", "", "12.7.0.0"}) {
    CHECK(!IsLoopback(other));
  }
}

TEST_CASE("address: of a node seen from outside, what was seen; given by the user, that") {
  std::deque<Member> round = {Make("a"), Make("b")};
  round[0].source_addr = "::ffff:10.0.0.7";
  CHECK(AdvertisedAddress(round[0], Pointers(round)) == "10.0.0.7");
  round[0].info.advertised_addr = "ib0.a";
  CHECK(AdvertisedAddress(round[0], Pointers(round)) == "ib0.a");
}

TEST_CASE("address: of the coordinator's host, where it accepted a node of another host") {
  for (const char* source : {"", "127.0.0.1", "::1", "127.0.1.1"}) {
    std::deque<Member> round = {Make("a"), Make("b"), Make("c")};
    round[0].source_addr = source;
    round[1].source_addr = "127.0.0.1";
    round[1].accepted_addr = "127.0.0.1";
    CHECK(AdvertisedAddress(round[0], Pointers(round)) == "10.0.0.1");
    round[0].info.advertised_addr = "localhost";
    CHECK(AdvertisedAddress(round[0], Pointers(round)) == "10.0.0.1");
    // An accepted address that says nothing: the name is what is left.
    round[2].accepted_addr = "";
    CHECK(AdvertisedAddress(round[0], Pointers(round)) == "a");
  }
}

TEST_CASE("address: a round on one host meets on 127.0.0.1") {
  std::deque<Member> round = {Make("a"), Make("b")};
  round[0].source_addr = "";
  round[1].source_addr = "127.0.1.1";
  CHECK(AdvertisedAddress(round[0], Pointers(round)) == "127.0.0.1");
  CHECK(AdvertisedAddress(round[1], Pointers(round)) == "127.0.0.1");
  round[0].info.advertised_addr = "127.0.0.5";
  CHECK(AdvertisedAddress(round[0], Pointers(round)) == "127.0.0.5");
}

}  // namespace
}  // namespace ddprun::rendezvous
