#include "worker_runtime/comm/plan.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/contains.h"

namespace ddp::internal {
namespace {

Capabilities On(const std::string& host, Backend backend = Backend::kAuto) {
  Capabilities capabilities;
  capabilities.backend = backend;
  capabilities.host = host;
  capabilities.address = "10.0.0.1";
  return capabilities;
}

Plan Made(const std::vector<Capabilities>& ranks) {
  auto plan = MakePlan(ranks);
  REQUIRE_MESSAGE(plan.ok(), plan.status().ToString());
  return *plan;
}

TEST_CASE("plan: ranks of one host share memory") {
  const Plan plan = Made({On("a"), On("a"), On("a")});
  CHECK(plan.node_sizes == std::vector<int>{3});
  CHECK(plan.reason == "shm: all ranks share a host");
}

TEST_CASE("plan: ranks of several hosts use tcp, and the first rank elsewhere is named") {
  const Plan plan = Made({On("a"), On("a"), On("b"), On("c"), On("c"), On("c")});
  CHECK(plan.node_sizes == std::vector<int>{2, 1, 3});
  CHECK(plan.reason == "tcp between 3 nodes: rank 2 is not on rank 0's host");
}

TEST_CASE("plan: only consecutive ranks of a host make a node, since sums go in rank order") {
  CHECK(Made({On("a"), On("b"), On("a"), On("a")}).node_sizes == std::vector<int>{1, 1, 2});
}

TEST_CASE("plan: tcp that was asked for is used on one host too") {
  const Plan plan = Made({On("a", Backend::kTcp), On("a", Backend::kTcp)});
  CHECK(plan.node_sizes == std::vector<int>{1, 1});
  CHECK(plan.reason == "tcp between all ranks, as asked for");
}

TEST_CASE("plan: shm that was asked for and cannot be names the rank that is elsewhere") {
  CHECK(Made({On("a", Backend::kShm), On("a", Backend::kShm)}).node_sizes == std::vector<int>{2});
  auto plan = MakePlan({On("a", Backend::kShm), On("a", Backend::kShm), On("b", Backend::kShm)});
  CHECK(absl::IsFailedPrecondition(plan.status()));
  CHECK(plan.status().message() ==
        "backend shm needs all ranks on one host: rank 2 is not on rank 0's");
}

TEST_CASE("plan: ranks that ask for different backends are refused by name") {
  auto plan = MakePlan({On("a"), On("a"), On("a", Backend::kShm)});
  CHECK(absl::IsFailedPrecondition(plan.status()));
  CHECK(plan.status().message() ==
        "the ranks ask for different backends: rank 0 for auto, rank 2 for shm");
}

TEST_CASE("plan: one rank without the round's key among others that have it is refused by name") {
  Capabilities with = On("a"), without = On("b");
  with.has_key = true;
  for (const auto& ranks : {std::vector<Capabilities>{with, without, with},
                            std::vector<Capabilities>{without, with, without}}) {
    auto plan = MakePlan(ranks);
    CHECK(absl::IsFailedPrecondition(plan.status()));
    const std::string expected = ranks[0].has_key
                                     ? "rank 1 has not the key of this round, with which rank 0"
                                     : "rank 0 has not the key of this round, with which rank 1";
    CHECK(plan.status().message() == Contains(expected));
  }
  CHECK(MakePlan({with, with}).ok());
}

TEST_CASE("plan: capabilities come back from the store as they went") {
  for (Backend backend : {Backend::kAuto, Backend::kShm, Backend::kTcp}) {
    Capabilities capabilities = On("boot-4026531840", backend);
    capabilities.address = "fe80::1%eth0";
    for (size_t i = 0; i < capabilities.nonce.size(); ++i) {
      capabilities.nonce[i] = static_cast<uint8_t>(37 * i + 250);
    }
    auto decoded = DecodeCapabilities(Encode(capabilities));
    REQUIRE_MESSAGE(decoded.ok(), decoded.status().ToString());
    CHECK(*decoded == capabilities);
  }
}

TEST_CASE("plan: a plan comes back from the store as it went") {
  const Plan plan = Made({On("a"), On("a"), On("b")});
  auto decoded = DecodePlan(Encode(plan), 3);
  REQUIRE_MESSAGE(decoded.ok(), decoded.status().ToString());
  CHECK(*decoded == plan);
}

TEST_CASE("plan: what was not encoded by this version is refused and quoted") {
  const std::string nonce(32, 'a');
  const std::string good = "ddp9|auto|host|10.0.0.1|" + nonce + "|off|cpu|plain|,,,,0,0,,0,0,0";
  REQUIRE(DecodeCapabilities(good).ok());
  for (const std::string& text :
       {std::string(), std::string("ddp9"), "ddp8" + good.substr(4),
        "ddp9|mpi|host|10.0.0.1|" + nonce + "|off|cpu|plain|,,,,0,0,,0,0,0",
        "ddp9|auto|host|10.0.0.1|" + nonce + "|loud|cpu|plain|,,,,0,0,,0,0,0",
        "ddp9|auto|host|10.0.0.1|" + nonce.substr(1) + "|off|cpu|plain|,,,,0,0,,0,0,0",
        "ddp9|auto|host|10.0.0.1|" + nonce.substr(1) + "g|off|cpu|plain|,,,,0,0,,0,0,0",
        "ddp9|auto|host|10.0.0.1|" + nonce + "|off|cpu|open|,,,,0,0,,0,0,0",
        "ddp9|auto|host|" + nonce + "|off|cpu|plain|,,,,0,0,,0,0,0", good + "|more"}) {
    CAPTURE(text);
    auto decoded = DecodeCapabilities(text);
    CHECK(absl::IsInvalidArgument(decoded.status()));
    CHECK(decoded.status().message() == Contains("\"" + text + "\""));
  }
  REQUIRE(DecodePlan("ddp9|2,2|00000|shm", 4).ok());
  for (const std::string text :
       {"", "ddp9", "ddp9|2,2", "ddp8|2,2|00000|shm", "ddp9||00000|shm", "ddp9|2,|00000|shm",
        "ddp9|2,0,2|00000|shm", "ddp9|5,-1|00000|shm", "ddp9|2,1|00000|shm", "ddp9|2,3|00000|shm",
        "ddp9|2,x|00000|shm", "ddp9|4294967300|00000|shm", "ddp9|2,2|0000|shm"}) {
    CAPTURE(text);
    auto decoded = DecodePlan(text, 4);
    CHECK(absl::IsInvalidArgument(decoded.status()));
    CHECK(decoded.status().message() == Contains("\"" + text + "\""));
  }
}

TEST_CASE("plan: a message about garbage stays short") {
  CHECK(DecodePlan(std::string(1 << 20, 'x'), 4).status().message().size() < 300);
}

TEST_CASE("plan: every rank finds its node and its neighbours") {
  const Plan plan{{2, 1, 3}, ""};
  struct Row {
    int rank, node, index, previous_first, next_first;
    std::vector<int> ranks;
  };
  const Row rows[] = {{0, 0, 0, -1, 2, {0, 1}},    {1, 0, 1, -1, 2, {0, 1}},
                      {2, 1, 0, 0, 3, {2}},        {3, 2, 0, 2, -1, {3, 4, 5}},
                      {4, 2, 1, 2, -1, {3, 4, 5}}, {5, 2, 2, 2, -1, {3, 4, 5}}};
  for (const Row& row : rows) {
    CAPTURE(row.rank);
    const Place place = PlaceOf(plan, row.rank);
    CHECK(place.node == row.node);
    CHECK(place.node_count == 3);
    CHECK(place.index == row.index);
    CHECK(place.ranks == row.ranks);
    CHECK(place.previous_first == row.previous_first);
    CHECK(place.next_first == row.next_first);
    CHECK(place.lanes == 1);
  }
}

TEST_CASE("plan: the smallest node says how many lanes there are, up to eight") {
  CHECK(PlaceOf({{4, 2, 3}, ""}, 0).lanes == 2);
  CHECK(PlaceOf({{16, 9}, ""}, 0).lanes == 8);
  CHECK(PlaceOf({{4}, ""}, 3).node_count == 1);
}

}  // namespace
}  // namespace ddp::internal
