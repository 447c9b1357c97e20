// Under the real torchrun the store and its keys outlive a restart: ranks of one start must find
// each other, and nothing of an earlier start.
#include "worker_runtime/session.h"

#include <doctest/doctest.h>

#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "tests/support/contains.h"
#include "tests/support/store_server.h"
#include "tests/support/virtual_clock.h"
#include "worker_runtime/store_client.h"

namespace ddp::internal {
namespace {

using ddprun::rendezvous::StoreServer;
using Session = absl::StatusOr<std::string>;

constexpr std::chrono::seconds kTimeout(30);
// No multiple of it is kTimeout or what the store's client waits for by itself.
constexpr std::chrono::seconds kShort(7);

class Torchrun {
 public:
  Torchrun() : server_(ddprun::testing::StartStoreServer()), store_(Connect()) {}

  std::unique_ptr<Store> Connect() {
    auto store = ConnectStore("127.0.0.1", server_->port(), kTimeout, clock_);
    DDP_CHECK(store.ok());
    return std::move(*store);
  }
  Session Join(int rank, int world_size, std::chrono::milliseconds timeout = kTimeout) {
    WorkerEnv env;
    env.rank = rank;
    env.world_size = world_size;
    return AgreeOnSession(*Connect(), env, timeout, clock_);
  }
  // For whom the others do not come within kShort, which passes when this rank waits for them.
  Session JoinInVain(int rank, int world_size) {
    auto joined = std::async(std::launch::async, [&] { return Join(rank, world_size, kShort); });
    return AfterTimeout(joined);
  }
  // Of a Join() with kShort.
  Session AfterTimeout(std::future<Session>& joined) {
    CHECK(clock_.AwaitWaitUntil(clock_.Now() + kShort));
    clock_.Advance(kShort);
    return Outcome(joined);
  }
  // Who comes to a wait after its deadline gives it a millisecond.
  Session Outcome(std::future<Session>& joined) {
    while (joined.wait_for(clock_.kSlice) != std::future_status::ready)
      clock_.Advance(clock_.kSlice);
    return joined.get();
  }
  std::string Now(const std::string& key) {
    auto has = store_->Check({key});
    REQUIRE(has.ok());
    if (!*has) return "";
    auto value = store_->Get(key, kTimeout);
    REQUIRE(value.ok());
    return *value;
  }
  void AwaitChange(const std::string& key, const std::string& old) {
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    while (Now(key) == old) {
      REQUIRE_MESSAGE(std::chrono::steady_clock::now() < deadline, key << " stays " << old);
      std::this_thread::yield();
    }
  }
  Store& store() { return *store_; }

  const ddprun::Clock& clock() const { return clock_; }

 private:
  ddprun::testing::VirtualClock clock_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<Store> store_;
};

// A key of the session that is under "ddp/session".
std::string InSession(Torchrun& torchrun, const std::string& what) {
  const std::string session = torchrun.Now("ddp/session");
  return absl::StrCat("ddp/", session.substr(0, session.find('/')), "/", what);
}

// One start of three ranks; `between` runs when those of `first` have begun and before the others.
std::vector<Session> Start(Torchrun& torchrun, const std::vector<int>& first,
                           const std::function<void()>& between) {
  std::vector<Session> sessions(3);
  std::vector<std::thread> threads;
  std::vector<bool> has_begun(3);
  auto begin = [&](int rank) {
    has_begun[rank] = true;
    threads.emplace_back([&, rank] { sessions[rank] = torchrun.Join(rank, 3); });
  };
  for (int rank : first) begin(rank);
  between();
  for (int rank = 0; rank < 3; ++rank) {
    if (!has_begun[rank]) begin(rank);
  }
  for (std::thread& thread : threads) thread.join();
  return sessions;
}

std::string CheckAgreed(const std::vector<Session>& sessions) {
  for (const Session& session : sessions) {
    INFO(session.status().ToString());
    REQUIRE(session.ok());
    CHECK(*session == *sessions[0]);
  }
  CHECK(absl::StartsWith(*sessions[0], "ddp/"));
  return *sessions[0];
}

TEST_CASE("session: ddprun says which round it is, and nothing is asked of the store") {
  Torchrun store;
  WorkerEnv env;
  env.rank = 1;
  env.world_size = 2;  // rank 0 never comes
  env.round = 3;
  env.epoch = 7;
  Session session = AgreeOnSession(store.store(), env, kTimeout, store.clock());
  REQUIRE(session.ok());
  CHECK(*session == "ddp/7.3");
  CHECK(*store.store().KeyCount() == 0);
}

TEST_CASE("session: ranks with different world sizes are told both") {
  Torchrun torchrun;
  CHECK(torchrun.JoinInVain(1, 2).status().message() ==
        "agreeing on a session timed out after 7 s: rank 0 did not come");
  auto follower = std::async(std::launch::async, [&] { return torchrun.Join(1, 2, kShort); });
  auto leader = std::async(std::launch::async, [&] { return torchrun.Join(0, 3, kShort); });
  torchrun.AwaitChange("ddp/session", "");
  torchrun.AwaitChange(InSession(torchrun, "odd/1"), "");
  const Session lead = torchrun.AfterTimeout(leader), follow = torchrun.Outcome(follower);
  CHECK(absl::IsInvalidArgument(lead.status()));
  CHECK(lead.status().message() ==
        "agreeing on a session timed out after 7 s: rank 0 was given a world size of 3, rank 1 "
        "one "
        "of 2; all ranks of a group are given the same");
  CHECK(absl::IsInvalidArgument(follow.status()));
  CHECK(follow.status().message() ==
        "agreeing on a session timed out after 7 s: rank 1 was given a world size of 2, rank 0 "
        "one "
        "of 3; all ranks of a group are given the same");
  CHECK(torchrun.JoinInVain(2, 4).status().message() ==
        Contains("rank 2 was given a world size of 4, rank 0 one of 3"));
}

// Nobody's hello comes, and the store stops answering.
class SilentStore final : public PrefixStore {
 public:
  explicit SilentStore(Store& store) : PrefixStore("job", store) {}
  absl::StatusOr<bool> Check(const std::vector<std::string>& keys) override {
    if (keys[0] == "ddp/session") return PrefixStore::Check(keys);
    return absl::UnavailableError("no answer");
  }
};

TEST_CASE("session: a rank 0 that cannot ask who came says so, and names nobody") {
  Torchrun torchrun;
  SilentStore store(torchrun.store());
  WorkerEnv env;
  env.rank = 0;
  env.world_size = 2;
  auto joined = std::async(std::launch::async,
                           [&] { return AgreeOnSession(store, env, kShort, torchrun.clock()); });
  CHECK(torchrun.AfterTimeout(joined).status().message() ==
        "agreeing on a session timed out after 7 s: who came is not known: no answer");
}

TEST_CASE("session: another release of ddprun in the store is named as that") {
  Torchrun torchrun;
  REQUIRE(torchrun.store().Set("ddp/session", "0123456789abcdef").ok());
  const absl::Status status = torchrun.Join(1, 2).status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(status.message() == Contains("another release of ddprun"));
}

TEST_CASE("session: the ranks of a start agree") {
  Torchrun torchrun;
  CheckAgreed(Start(torchrun, {0, 1, 2}, [] {}));
}

TEST_CASE("session: a group of one agrees with itself, again after a restart") {
  Torchrun torchrun;
  Session first = torchrun.Join(0, 1), second = torchrun.Join(0, 1);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(*first != *second);
}

TEST_CASE("session: a rank 0 that restarts before the others does not take their old hellos") {
  Torchrun torchrun;
  const std::string before = CheckAgreed(Start(torchrun, {0, 1, 2}, [] {}));
  const std::string old = torchrun.Now("ddp/session");
  const std::string after = CheckAgreed(Start(torchrun, {0}, [&] {
    // It has published a session with the old nonces of ranks 1 and 2.
    torchrun.AwaitChange("ddp/session", old);
  }));
  CHECK(after != before);
}

TEST_CASE("session: ranks that restart before rank 0 do not take the old session") {
  Torchrun torchrun;
  const std::string before = CheckAgreed(Start(torchrun, {0, 1, 2}, [] {}));
  const std::string key1 = InSession(torchrun, "hello/1"), key2 = InSession(torchrun, "hello/2");
  const std::string old1 = torchrun.Now(key1), old2 = torchrun.Now(key2);
  const std::string after = CheckAgreed(Start(torchrun, {1, 2}, [&] {
    torchrun.AwaitChange(key1, old1);
    torchrun.AwaitChange(key2, old2);
  }));
  CHECK(after != before);
}

TEST_CASE("session: a start that only some ranks reached leaves nothing that a later one takes") {
  Torchrun torchrun;
  // Rank 2 comes and dies, then ranks 0 and 2 do; rank 1 never came.
  CHECK(absl::IsDeadlineExceeded(torchrun.JoinInVain(2, 3).status()));
  CHECK(torchrun.JoinInVain(0, 3).status().message() ==
        "agreeing on a session timed out after 7 s: ranks 1 and 2 did not come");
  CHECK(absl::IsDeadlineExceeded(torchrun.JoinInVain(2, 3).status()));
  CheckAgreed(Start(torchrun, {1, 0}, [] {}));
}

TEST_CASE("session: a rank of an earlier start counts as missing until it comes again") {
  Torchrun torchrun;
  CheckAgreed(Start(torchrun, {0, 1, 2}, [] {}));
  Session session = torchrun.JoinInVain(0, 3);
  CHECK(absl::IsDeadlineExceeded(session.status()));
  CHECK(session.status().message() ==
        "agreeing on a session timed out after 7 s: ranks 1 and 2 did not come");
}

TEST_CASE("session: a rank 0 of an earlier start gives way to the new one") {
  Torchrun torchrun;
  Session old_leader, leader, follower;
  std::thread old_thread([&] { old_leader = torchrun.Join(0, 2); });
  torchrun.AwaitChange("ddp/session", "");
  const std::string old = torchrun.Now("ddp/session");
  std::thread thread([&] { leader = torchrun.Join(0, 2); });
  torchrun.AwaitChange("ddp/session", old);
  std::thread other([&] { follower = torchrun.Join(1, 2); });
  for (std::thread* each : {&old_thread, &thread, &other}) each->join();
  CHECK(absl::IsAborted(old_leader.status()));
  CheckAgreed({leader, follower});
}

// What two ranks ask of their stores: rank 2 says a word only once rank 1 waits in the store, or
// has asked it more often than a rank does that is woken.
class Watch {
 public:
  static constexpr int kMost = 12;

  void Asked(int more) {
    const std::lock_guard lock(mutex_);
    asked_ += more;
    changed_.notify_all();
  }
  void Waits(bool waits) {
    const std::lock_guard lock(mutex_);
    waits_ = waits;
    changed_.notify_all();
  }
  void Await() {
    std::unique_lock lock(mutex_);
    CHECK(changed_.wait_for(lock, kTimeout, [&] { return waits_ || asked_ > kMost; }));
  }
  int asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int asked_ = 0;
  bool waits_ = false;
};

class WatchedStore final : public Store {
 public:
  WatchedStore(std::unique_ptr<Store> store, Watch& watch, int rank)
      : store_(std::move(store)), watch_(watch), rank_(rank) {}

  absl::Status Set(const std::string& key, const std::string& value) override {
    Ask();
    if (rank_ == 2) watch_.Await();
    return store_->Set(key, value);
  }
  absl::StatusOr<std::string> Get(const std::string& key, Milliseconds timeout) override {
    if (absl::Status status = Wait({key}, timeout); !status.ok()) return status;
    return store_->Get(key, timeout);
  }
  absl::StatusOr<bool> Check(const std::vector<std::string>& keys) override {
    Ask();
    return store_->Check(keys);
  }
  absl::Status Wait(const std::vector<std::string>& keys, Milliseconds timeout) override {
    Ask();
    const auto are_there = store_->Check(keys);
    const bool waits = rank_ == 1 && are_there.ok() && !*are_there;
    if (waits) watch_.Waits(true);
    absl::Status status = store_->Wait(keys, timeout);
    if (waits) watch_.Waits(false);
    return status;
  }
  absl::StatusOr<std::string> CompareSet(const std::string& key, const std::string& expected,
                                         const std::string& desired) override {
    Ask();
    return store_->CompareSet(key, expected, desired);
  }
  absl::StatusOr<int64_t> Add(const std::string& key, int64_t by) override {
    return store_->Add(key, by);
  }
  absl::StatusOr<bool> Delete(const std::string& key) override { return store_->Delete(key); }
  absl::StatusOr<int64_t> KeyCount() override { return store_->KeyCount(); }
  std::string LocalAddress() const override { return store_->LocalAddress(); }

 private:
  void Ask() {
    if (rank_ == 1) watch_.Asked(1);
  }

  const std::unique_ptr<Store> store_;
  Watch& watch_;
  const int rank_;
};

TEST_CASE("session: who waits for other ranks is woken by the store and does not ask it again") {
  Torchrun torchrun;
  Watch watch;
  std::vector<Session> sessions(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      WatchedStore store(torchrun.Connect(), watch, rank);
      WorkerEnv env;
      env.rank = rank;
      env.world_size = 3;
      sessions[static_cast<size_t>(rank)] = AgreeOnSession(store, env, kTimeout, torchrun.clock());
    });
  }
  for (std::thread& thread : threads) thread.join();
  CheckAgreed(sessions);
  CHECK(watch.asked() <= Watch::kMost);
}

}  // namespace
}  // namespace ddp::internal
