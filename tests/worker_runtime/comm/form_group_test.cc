// What the others hear of a rank that fails while their group forms.
#include "worker_runtime/comm/form_group.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <string>
#include <utility>

#include "tests/support/contains.h"
#include "tests/support/odd_stores.h"
#include "tests/support/scarce_descriptors.h"
#include "tests/support/store_server.h"

namespace ddp::internal {
namespace {

using ddprun::testing::Contains;

GroupMember MemberOf(int rank) {
  GroupMember member;
  member.rank = rank;
  member.world_size = 2;
  member.timeout = std::chrono::seconds(60);
  member.capabilities.host = "host";
  member.capabilities.device = DeviceChoice::kCpu;
  return member;
}

TEST_CASE("form group: rank 0 that has no descriptor to listen tells the others at once") {
  const auto server = ddprun::testing::StartStoreServer();
  const auto connect = [&] {
    auto store = Store::Connect("127.0.0.1", server->port(), std::chrono::seconds(60));
    REQUIRE(store.ok());
    return *std::move(store);
  };
  const std::unique_ptr<Store> first = connect(), second = connect();
  auto follower =
      std::async(std::launch::async, [&] { return FormGroup(*second, MemberOf(1)).status(); });
  REQUIRE(first->Wait({"rank/1"}, std::chrono::seconds(60)).ok());  // its listener is open
  absl::Status leader;
  {
    const ddprun::testing::NoMoreDescriptors none(getpid());
    leader = FormGroup(*first, MemberOf(0)).status();
    CHECK_MESSAGE(absl::IsResourceExhausted(leader), leader.ToString());
  }
  const absl::Status told = follower.get();
  CHECK_MESSAGE(absl::IsResourceExhausted(told), told.ToString());
  CHECK(told.message() == "rank 0: " + std::string(leader.message()));
  CHECK(told.message() == Contains("(EMFILE)"));
}

// Where encryption is asked for and this rank cannot have the library.
TEST_CASE("form group: a rank that can use no key tells rank 0 at once") {
  const auto server = ddprun::testing::StartStoreServer();
  auto store = Store::Connect("127.0.0.1", server->port(), std::chrono::seconds(60));
  REQUIRE(store.ok());
  GroupMember member = MemberOf(1);
  member.round_key = std::string(32, 'k');
  absl::Status status;
  {
    const ddprun::testing::NoMoreDescriptors none(getpid());
    status = FormGroup(**store, member).status();
  }
  CHECK_MESSAGE(status.message() == Contains("encrypt the links between nodes"), status.ToString());
  const absl::Status leader = FormGroup(**store, MemberOf(0)).status();
  CHECK(leader.message() == "rank 1: " + std::string(status.message()));
}

TEST_CASE("form group: a rank without memory says so, also to rank 0") {
  const auto server = ddprun::testing::StartStoreServer();
  auto store = Store::Connect("127.0.0.1", server->port(), std::chrono::seconds(60));
  REQUIRE(store.ok());
  ddprun::testing::ShortStore scarce(**store);
  const absl::Status status = FormGroup(scarce, MemberOf(1)).status();
  CHECK(absl::IsResourceExhausted(status));
  CHECK(status.message() == Contains("form a group of 2 ranks: Cannot allocate memory (ENOMEM)"));
  const absl::Status leader = FormGroup(scarce, MemberOf(0)).status();
  CHECK(leader.message() == "rank 1: " + std::string(status.message()));
}

TEST_CASE("form group: a rank that has no memory to tell anybody ends all the same") {
  const auto server = ddprun::testing::StartStoreServer();
  auto store = Store::Connect("127.0.0.1", server->port(), std::chrono::seconds(60));
  REQUIRE(store.ok());
  ddprun::testing::ShortStore scarce(**store, 100);
  for (const int rank : {0, 1}) {
    const absl::Status status = FormGroup(scarce, MemberOf(rank)).status();
    CHECK_MESSAGE(absl::IsResourceExhausted(status), status.ToString());
  }
}

}  // namespace
}  // namespace ddp::internal
