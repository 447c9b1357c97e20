#include "worker_runtime/comm/failure_board.h"

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

#include "absl/strings/match.h"
#include "tests/support/contains.h"
#include "tests/support/store_server.h"
#include "worker_runtime/comm/left_peer.h"

namespace ddp::internal {
namespace {

using ddprun::rendezvous::StoreServer;
using std::chrono::milliseconds;
using Ranks = std::vector<int>;

constexpr milliseconds kLong = std::chrono::seconds(30);

// A store and the boards of all ranks on it.
struct Boards {
  explicit Boards(int size) {
    auto connected = Store::Connect("127.0.0.1", server->port(), kLong);
    REQUIRE(connected.ok());
    store = *std::move(connected);
    for (int rank = 0; rank < size; ++rank) {
      boards.push_back(std::make_unique<FailureBoard>(
          "host", rank, size, [port = server->port()](milliseconds timeout) {
            return Store::Connect("127.0.0.1", port, timeout);
          }));
    }
  }
  FailureBoard& operator[](int rank) { return *boards[static_cast<size_t>(rank)]; }

  std::unique_ptr<StoreServer> server = ddprun::testing::StartStoreServer();
  std::unique_ptr<Store> store;  // the test's own
  std::vector<std::unique_ptr<FailureBoard>> boards;
};

Op AllReduce(uint64_t sequence, size_t count = 10) {
  Op op;
  op.kind = OpKind::kAllReduce;
  op.dtype = DType::kFloat32;
  op.count = count;
  op.sequence = sequence;
  return op;
}

TEST_CASE("failure board: the first word on a failure is everybody's") {
  Boards boards(3);
  CHECK(boards[2].Read(milliseconds(1)).ok());  // lower bound: there is no word
  const absl::Status first = absl::UnavailableError("rank 1 died: 3 | 4\nand more");
  CHECK(boards[0].Publish(first) == first);
  CHECK(boards[1].Publish(absl::DeadlineExceededError("something else")) == first);
  CHECK(boards[1].Read(kLong) == first);
  CHECK(boards[2].Read(kLong) == first);
}

TEST_CASE("failure board: the word keeps which rank's leaving was the cause") {
  Boards boards(2);
  const absl::Status first = WithLeftPeer(absl::UnavailableError("rank 12 @3 died"), 12);
  CHECK(boards[0].Publish(first) == first);
  const absl::Status read = boards[1].Read(kLong);
  CHECK(read == first);
  CHECK(LeftPeerOf(read) == 12);
}

TEST_CASE("failure board: a mark that is none is no cause") {
  for (const char* word :
       {"14@ x", "14@-1 x", "14@a x", "14@4294967296 x", "14@1@2 x", "14 @1 x"}) {
    CAPTURE(word);
    Boards boards(1);
    REQUIRE(boards.store->Set("failure", word).ok());
    const absl::Status read = boards[0].Read(kLong);
    CHECK(absl::IsUnavailable(read));
    CHECK(LeftPeerOf(read) == std::nullopt);
  }
}

TEST_CASE("failure board: whoever reads waits for the word") {
  Boards boards(2);
  const absl::Status word = absl::InternalError("");
  std::thread late([&] { boards[1].Publish(word).IgnoreError(); });
  CHECK(boards[0].Read(kLong) == word);
  late.join();
}

// Counts what is asked, and runs out of time where `questions` are over.
class CountingStore final : public PrefixStore {
 public:
  CountingStore(Store& store, int questions) : PrefixStore("r", store), questions_(questions) {}
  absl::StatusOr<bool> Check(const std::vector<std::string>& keys) override {
    if (questions_-- == 0) return absl::UnavailableError("no more");
    return PrefixStore::Check(keys);
  }
  int left() const { return questions_; }

 private:
  int questions_;
};

std::string KeyOf(int rank) { return "here/" + std::to_string(rank); }

TEST_CASE("survey: a few missing among thousands are found with few questions") {
  constexpr int kSize = 10000;
  const Boards boards(0);
  CountingStore store(*boards.store, 1000);
  const std::vector<int> missing = {0, 511, 512, 5000, 5001, 5002, 9999};
  std::vector<std::string> keys, values;
  for (int rank = 0; rank < kSize; ++rank) {
    if (std::count(missing.begin(), missing.end(), rank) > 0) continue;
    keys.push_back(KeyOf(rank));
    values.push_back(std::to_string(rank));
  }
  REQUIRE(store.MultiSet(keys, values).ok());
  const auto answers = AskRanks(store, kSize, KeyOf, Clock::now() + kLong);
  REQUIRE(answers.size() == kSize);
  int wrong = 0;
  for (int rank = 0; rank < kSize; ++rank) {
    const bool is_missing = std::count(missing.begin(), missing.end(), rank) > 0;
    const auto& answer = answers[static_cast<size_t>(rank)];
    wrong += answer.has_value() == is_missing || (!is_missing && *answer != std::to_string(rank));
  }
  CHECK(wrong == 0);
  CHECK(1000 - store.left() <= 20 + 14 * 10);
}

TEST_CASE("survey: it ends when the time is over or the store is gone, with what it knows") {
  constexpr int kSize = 1200;
  const Boards boards(0);
  CountingStore store(*boards.store, 1);
  for (int rank = 0; rank < kSize; ++rank) REQUIRE(store.Set(KeyOf(rank), "x").ok());
  CHECK(AskRanks(store, kSize, KeyOf, Clock::now() + kLong).size() == 512);
  CHECK(AskRanks(store, kSize, KeyOf, Clock::now()).empty());
  CHECK(NameExtent({.missing = {}, .asked = 512, .world_size = kSize}) ==
        " (of the 512 ranks that could be asked, of 1200)");
  CHECK(NameExtent({.missing = {}, .asked = kSize, .world_size = kSize}).empty());
}

TEST_CASE("failure board: the first to claim asks for all") {
  for (const int first : {0, 2}) {
    Boards boards(3);
    CHECK(boards[first].ClaimSurvey() == first);
    CHECK(boards[1].ClaimSurvey() == first);
    CHECK(boards[first].ClaimSurvey() == first);
  }
}

TEST_CASE("failure board: ranks that did not say that they arrived are missing") {
  Boards boards(4);
  const Survey nobody = boards[0].MissingAt(1);
  CHECK(nobody.missing == Ranks{1, 2, 3});
  CHECK(nobody.asked == 4);
  CHECK(nobody.is_whole());
  boards[1].SayArrived(AllReduce(5));
  boards[3].SayArrived(AllReduce(4));
  CHECK(boards[0].MissingAt(5).missing == Ranks{2, 3});
  CHECK(boards[0].MissingAt(4).missing == Ranks{2});
  CHECK(boards[2].MissingAt(5).missing == Ranks{0, 3});
  boards[3].SayArrived(AllReduce(5));
  Op replay = AllReduce(6);  // must have been through 5
  replay.kind = OpKind::kReplay;
  boards[2].SayArrived(replay);
  CHECK(boards[0].MissingAt(5).missing.empty());
  CHECK(boards[0].MissingAt(7).missing == Ranks{1, 2, 3});
}

// Its first answer is followed by `then`.
class LateStore final : public PrefixStore {
 public:
  LateStore(std::unique_ptr<Store> store, std::function<void()> then)
      : PrefixStore("r", *store), store_(std::move(store)), then_(std::move(then)) {}
  absl::StatusOr<bool> Check(const std::vector<std::string>& keys) override {
    auto has = PrefixStore::Check(keys);
    if (then_ != nullptr) std::exchange(then_, nullptr)();
    return has;
  }

 private:
  const std::unique_ptr<Store> store_;
  std::function<void()> then_;
};

TEST_CASE("failure board: a rank that says so during the survey is not missing") {
  Boards boards(2);
  boards[1].SayArrived(AllReduce(2));
  const auto arrival = boards.store->Get("arrived/host/1", kLong);
  REQUIRE(arrival.ok());
  // With rank 0 there, whoever lacks is known to be rank 1, and is not asked again at once.
  REQUIRE(boards.store->Set("r/arrived/host/0", *arrival).ok());
  FailureBoard board("host", 0, 2,
                     [&](milliseconds timeout) -> absl::StatusOr<std::unique_ptr<Store>> {
                       auto store = Store::Connect("127.0.0.1", boards.server->port(), timeout);
                       REQUIRE(store.ok());
                       return std::make_unique<LateStore>(*std::move(store), [&] {
                         CHECK(boards.store->Set("r/arrived/host/1", *arrival).ok());
                       });
                     });
  CHECK(board.MissingAt(2).missing.empty());
}

// Answers the first look, and no question after it; counts those.
class DyingStore final : public PrefixStore {
 public:
  DyingStore(std::unique_ptr<Store> store, int* refused)
      : PrefixStore("r", *store), store_(std::move(store)), refused_(*refused) {}
  absl::StatusOr<bool> Check(const std::vector<std::string>& keys) override {
    if (++asked_ <= kFirstLook) return PrefixStore::Check(keys);
    ++refused_;
    return absl::UnavailableError("gone");
  }

 private:
  static constexpr int kFirstLook = 1 + 2 + 4;  // all four ranks, halves, each
  const std::unique_ptr<Store> store_;
  int& refused_;
  int asked_ = 0;
};

TEST_CASE("failure board: a store that dies during the survey is not asked for rank after rank") {
  const Boards boards(4);
  int refused = 0;
  FailureBoard board("host", 0, 4,
                     [&](milliseconds timeout) -> absl::StatusOr<std::unique_ptr<Store>> {
                       auto store = Store::Connect("127.0.0.1", boards.server->port(), timeout);
                       REQUIRE(store.ok());
                       return std::make_unique<DyingStore>(*std::move(store), &refused);
                     });
  const Survey survey = board.MissingAt(1);
  CHECK(survey.missing == Ranks{1, 2, 3});
  CHECK(survey.is_whole());
  CHECK(refused == 1);
}

TEST_CASE("failure board: a rank in another operation of the same number is told with both") {
  Boards boards(3);
  CHECK(boards[1].MismatchAt(AllReduce(7)).ok());
  boards[2].SayArrived(AllReduce(6, 11));  // on its way
  CHECK(boards[1].MismatchAt(AllReduce(7)).ok());
  boards[2].SayArrived(AllReduce(7, 11));
  const absl::Status status = boards[1].MismatchAt(AllReduce(7));
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() ==
        "the ranks call different operations: rank 1 all-reduce #7 (float32 x 10, sum), rank 2 "
        "all-reduce #7 (float32 x 11, sum); all ranks make the same calls in the same order, those "
        "within DistributedDataParallel and checkpoints too");
  // The last rank's neighbour is the first.
  boards[0].SayArrived(AllReduce(7));
  Op broadcast = AllReduce(7, 11);
  broadcast.kind = OpKind::kBroadcast;
  broadcast.root = 1;
  CHECK(absl::StartsWith(
      boards[2].MismatchAt(broadcast).message(),
      "the ranks call different operations: rank 2 broadcast #7 (float32 x 11, root 1), rank 0 "
      "all-reduce #7 (float32 x 10, sum); "));
}

TEST_CASE("failure board: garbage in the store blames nobody") {
  for (const std::string& garbage :
       {std::string(), std::string("x"), std::string(47, '0'), std::string(48, 'z'),
        std::string(48, 'f'), std::string(96, '0'), std::string(1 << 16, 'a')}) {
    CAPTURE(garbage.substr(0, 60));
    Boards boards(3);
    REQUIRE(boards.store->Set("arrived/host/1", garbage).ok());
    boards[2].SayArrived(AllReduce(3));
    CHECK(boards[0].MissingAt(3).missing.empty());
    CHECK(boards[0].MismatchAt(AllReduce(3)).ok());
  }
}

TEST_CASE("failure board: garbage in the failure's place is a failure, quoted and short") {
  for (const std::string& garbage : {std::string("x"), std::string("0 fine"), std::string("17 odd"),
                                     std::string("4"), std::string(1 << 16, 'a')}) {
    Boards boards(2);
    REQUIRE(boards.store->Set("failure", garbage).ok());
    const absl::Status status = boards[0].Publish(absl::AbortedError("mine"));
    CHECK(absl::IsUnknown(status));
    CHECK(status.message() == Contains("the store holds no failure: \"" + garbage.substr(0, 20)));
    CHECK(status.message().size() < 300);
    CHECK(boards[1].Read(kLong) == status);
  }
}

TEST_CASE("failure board: without a store everything ends quietly, and nobody is blamed") {
  int attempts = 0;
  FailureBoard board("host", 0, 2,
                     [&attempts](milliseconds) -> absl::StatusOr<std::unique_ptr<Store>> {
                       ++attempts;
                       return absl::UnavailableError("gone");
                     });
  const absl::Status mine = absl::DeadlineExceededError("mine");
  CHECK(board.Publish(mine) == mine);
  CHECK(board.Read(kLong).ok());
  board.SayArrived(AllReduce(1));
  CHECK(board.MissingAt(1).asked == 0);
  CHECK(board.ClaimSurvey() == -1);
  CHECK(board.MismatchAt(AllReduce(1)).ok());
  CHECK(attempts == 1);
}

TEST_CASE("failure board: a store that goes away later changes nothing of that") {
  Boards boards(2);
  boards[1].SayArrived(AllReduce(1));
  CHECK(boards[0].MissingAt(1).missing.empty());
  boards.server.reset();
  const absl::Status mine = absl::DeadlineExceededError("mine");
  CHECK(boards[0].Publish(mine) == mine);
  CHECK(boards[0].MissingAt(2).asked == 0);
  CHECK(boards[0].ClaimSurvey() == -1);
  CHECK(boards[0].MismatchAt(AllReduce(1)).ok());
}

}  // namespace
}  // namespace ddp::internal
