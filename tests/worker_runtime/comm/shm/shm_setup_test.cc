// What ranks that share memory hear of one that cannot join it. Nobody waits for the deadline.
#include "worker_runtime/comm/shm/shm_setup.h"

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
using ddprun::testing::NoMoreDescriptors;

constexpr std::chrono::seconds kTimeout(60);
const std::vector<int> kRanks = {4, 5, 6};

struct Node {
  std::unique_ptr<Store> Connect() const {
    auto store = Store::Connect("127.0.0.1", server->port(), kTimeout);
    REQUIRE(store.ok());
    return *std::move(store);
  }
  static absl::Status Join(Store& store, int index) {
    return JoinShmGroup(store, "node/4", kRanks, index, Clock::now() + std::chrono::hours(1))
        .status();
  }

  std::unique_ptr<ddprun::rendezvous::StoreServer> server = ddprun::testing::StartStoreServer();
};

TEST_CASE("shm set-up: a first rank that has no descriptor left tells those who come later why") {
  const Node node;
  const auto store = node.Connect();
  absl::Status first;
  {
    const NoMoreDescriptors none(getpid());
    first = Node::Join(*store, 0);
    CHECK_MESSAGE(absl::IsResourceExhausted(first), first.ToString());
  }
  const absl::Status later = Node::Join(*store, 1);
  CHECK(absl::IsUnavailable(later));
  CHECK(later.message() ==
        "rank 4, which holds this node's shared memory, has none: " + std::string(first.message()));
}

TEST_CASE("shm set-up: a rank that has no descriptor to come with tells the first, which ends") {
  const Node node;
  const auto first_store = node.Connect(), store = node.Connect();
  auto first = std::async(std::launch::async, [&] { return Node::Join(*first_store, 0); });
  REQUIRE(store->Wait({"node/4"}, kTimeout).ok());
  {
    const NoMoreDescriptors none(getpid());
    const absl::Status status = Node::Join(*store, 1);
    CHECK_MESSAGE(absl::IsResourceExhausted(status), status.ToString());
  }
  const absl::Status told = first.get();
  CHECK_MESSAGE(absl::IsUnavailable(told), told.ToString());
  CHECK(told.message() == Contains("rank 5 did not join: socket for this node's ranks: "));
  CHECK(told.message() == Contains("(EMFILE)"));
  const absl::Status third = Node::Join(*store, 2);
  CHECK(third.message() == Contains(std::string(told.message())));
}

TEST_CASE("shm set-up: a first rank without memory tells those who come later") {
  const Node node;
  const auto store = node.Connect();
  ddprun::testing::ShortStore scarce(*store);
  const absl::Status first = Node::Join(scarce, 0);
  CHECK_MESSAGE(absl::IsResourceExhausted(first), first.ToString());
  CHECK(Node::Join(scarce, 1).message() ==
        "rank 4, which holds this node's shared memory, has none: " + std::string(first.message()));
}

TEST_CASE("shm set-up: a rank that has no memory to tell anybody ends all the same") {
  const Node node;
  const auto store = node.Connect();
  ddprun::testing::ShortStore scarce(*store, 100);
  CHECK(absl::IsResourceExhausted(Node::Join(scarce, 0)));
  REQUIRE(PrefixStore("", *store).Set("node/4", "failed for a reason").ok());
  CHECK(Node::Join(scarce, 1).message() == Contains("has none: for a reason"));
}

TEST_CASE("shm set-up: a first rank looks for news on a connection of its own") {
  const Node node;
  const auto store = node.Connect();
  ddprun::testing::AskedStore asked(*store);
  const auto deadline = Clock::now() + std::chrono::seconds(3);
  CHECK(absl::IsDeadlineExceeded(JoinShmGroup(asked, "node/4", kRanks, 0, deadline).status()));
  CHECK_FALSE(asked.has_been_asked);
  CHECK(asked.longest <= std::chrono::seconds(2));
  CHECK(asked.longest > std::chrono::seconds(0));
}

}  // namespace
}  // namespace ddp::internal
