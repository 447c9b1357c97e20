// Hostile connections to the ranks' own ports while a group forms: they are dropped, also by a rank
// that is itself waiting, and the group forms.
#include "worker_runtime/comm/tcp/tcp_setup.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/support/contains.h"
#include "tests/support/no_memory.h"
#include "tests/support/odd_stores.h"
#include "tests/support/scarce_descriptors.h"
#include "tests/support/store_server.h"
#include "tests/worker_runtime/comm/tcp/intruder.h"
#include "worker_runtime/comm/form_group.h"
#include "worker_runtime/comm/tcp/acceptor.h"

namespace ddp::internal {
namespace {

using ddprun::rendezvous::StoreServer;
using ddprun::testing::Contains;
using ddprun::testing::Intruder;
using ddprun::testing::StartStoreServer;

constexpr std::chrono::seconds kTimeout(60);

class Gate {
 public:
  void Open() {
    std::lock_guard lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }
  void Pass() {
    std::unique_lock lock(mutex_);
    opened_.wait_for(lock, kTimeout, [this] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false;
};

// The keys as they are, but who asks for `key` stands before a gate first.
class GatedStore final : public PrefixStore {
 public:
  GatedStore(Store& store, std::string key, Gate& gate)
      : PrefixStore("job", store), key_(std::move(key)), gate_(gate) {}
  absl::StatusOr<std::string> Get(const std::string& key, Milliseconds timeout) override {
    if (key == key_) gate_.Pass();
    return PrefixStore::Get(key, timeout);
  }

 private:
  const std::string key_;
  Gate& gate_;
};

// Three ranks, none of which shares memory; each sums over tcp and waits until all ports were
// tried.
class Forming {
 public:
  // `is_held`: no rank connects to the one below it before Release().
  explicit Forming(bool is_held, std::string round_key = "") : round_key_(std::move(round_key)) {
    statuses_.resize(3);
    if (!is_held) Release();
    for (int rank = 0; rank < 3; ++rank) {
      threads_.emplace_back([this, rank] { statuses_[rank] = RunRank(rank); });
    }
    auto store = Store::Connect("127.0.0.1", server_->port(), kTimeout);
    REQUIRE(store.ok());
    store_ = std::move(*store);
  }
  ~Forming() {
    Release();
    LetGo();
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  std::string Value(const std::string& key) {
    auto value = store_->Get("job/" + key, kTimeout);
    REQUIRE_MESSAGE(value.ok(), value.status().ToString());
    return *value;
  }
  uint16_t PortOf(int rank) {
    int port = 0;
    REQUIRE(absl::SimpleAtoi(Value(absl::StrCat("port/", rank)), &port));
    return static_cast<uint16_t>(port);
  }
  Nonce NonceOf(int rank) {
    auto capabilities = DecodeCapabilities(Value(absl::StrCat("rank/", rank)));
    REQUIRE(capabilities.ok());
    return capabilities->nonce;
  }
  void Release() { gate_.Open(); }
  void AwaitFormed() {
    for (int rank = 0; rank < 3; ++rank) Value(absl::StrCat("formed/", rank));
  }
  bool HasFormed() { return store_->Check({"job/formed/0"}).value_or(true); }
  void LetGo() { end_.Open(); }
  void CheckAllWell() {
    LetGo();
    for (std::thread& thread : threads_) thread.join();
    for (const absl::Status& status : statuses_) {
      INFO(status.ToString());
      CHECK(status.ok());
    }
  }

 private:
  absl::Status RunRank(int rank) {
    auto connected = Store::Connect("127.0.0.1", server_->port(), kTimeout);
    if (!connected.ok()) return connected.status();
    GatedStore store(**connected, absl::StrCat("port/", rank - 1), gate_);
    GroupMember member;
    member.rank = rank;
    member.world_size = 3;
    member.timeout = kTimeout;
    member.round_key = round_key_;
    member.capabilities = {Backend::kTcp, "host", "127.0.0.1", {}};
    auto formed = FormGroup(store, member);
    if (!formed.ok()) return formed.status();
    std::vector<int32_t> data(1000, rank + 1);
    Communicator& group = *formed->communicator;
    absl::Status status =
        group.AllReduce(data.data(), data.size(), DType::kInt32, ReduceOp::kSum)->Wait();
    if (!status.ok()) return status;
    if (data != std::vector<int32_t>(1000, 6)) return absl::InternalError("a wrong sum");
    status = store.Set(absl::StrCat("formed/", rank), "1");
    end_.Pass();
    return status;
  }

  const std::string round_key_;
  const std::unique_ptr<StoreServer> server_ = StartStoreServer();
  std::unique_ptr<Store> store_;
  Gate gate_;
  Gate end_;
  std::vector<absl::Status> statuses_;
  std::vector<std::thread> threads_;
};

std::string Bytes(const Hello& hello) {
  return std::string(reinterpret_cast<const char*>(&hello), sizeof hello);
}

// What strangers say to `target`.
std::vector<std::string> Sayings(Forming& forming, int target, int other) {
  const Nonce own = forming.NonceOf(target), others = forming.NonceOf(other);
  Nonce guessed = own;
  guessed[0] ^= 0x80;
  return {
      "",
      "ddplink1",
      std::string(4096, '\xee'),
      std::string(4 << 20, 'x'),
      Bytes(MakeHello(guessed, target + 1, target)),  // another round's nonce
      Bytes(MakeHello(others, target + 1, target)),   // another rank's nonce
      Bytes(MakeHello(own, target + 1, target + 1)),  // for another rank
      Bytes(MakeHello(own, target + 2, target)),      // from a rank that is no neighbour
      Bytes(MakeHello(own, target, target)),
      Bytes(MakeHello(own, 1 << 30, target)),
  };
}

void CheckDroppedBeforeItForms(std::vector<Intruder>& intruders, Forming& forming) {
  for (size_t i = 0; i < intruders.size(); ++i) {
    CAPTURE(i);
    CHECK(intruders[i].IsDropped());
  }
  CHECK_FALSE(forming.HasFormed());
  forming.Release();
  forming.AwaitFormed();
  forming.CheckAllWell();
}

TEST_CASE("tcp set-up: hostile connections to ranks that wait are dropped, and the group forms") {
  Forming forming(true);
  // All at once, so that the silent ones cost the test their time only once. Rank 0 waits for its
  // peer; rank 1, in the middle, waits for its own and is itself held on its way to rank 0.
  std::vector<Intruder> intruders;
  for (int target : {0, 1}) {
    for (const std::string& saying : Sayings(forming, target, 1 - target)) {
      intruders.emplace_back(forming.PortOf(target));
      intruders.back().Say(saying);
    }
  }
  CheckDroppedBeforeItForms(intruders, forming);
}

TEST_CASE("tcp set-up: once the group has formed no rank has an open port") {
  Forming forming(false);
  const uint16_t ports[] = {forming.PortOf(0), forming.PortOf(1)};
  Intruder silent(ports[0]);
  forming.AwaitFormed();
  CHECK(silent.IsDropped());
  for (uint16_t port : ports) CHECK(Intruder(port).IsRefused());
  forming.CheckAllWell();
}

TEST_CASE("tcp set-up: who would connect to a rank that cannot listen has its reason at once") {
  const auto server = StartStoreServer();
  auto store = Store::Connect("127.0.0.1", server->port(), kTimeout);
  REQUIRE(store.ok());
  const Endpoint lower{0, "host0", "127.0.0.1", {1}}, higher{1, "host1", "127.0.0.1", {2}};
  const auto deadline = Clock::now() + std::chrono::hours(1);
  {
    const ddprun::testing::NoMoreDescriptors none(getpid());
    const auto links = ConnectChain(**store, lower, {}, higher, nullptr, deadline);
    CHECK(absl::IsUnavailable(links.status()));
  }
  const auto links = ConnectChain(**store, higher, lower, {}, nullptr, deadline);
  CHECK(absl::IsUnavailable(links.status()));
  CHECK(links.status().message() == Contains("rank 0 does not listen: rank 0 cannot listen on"));
  CHECK(links.status().message() == Contains("(EMFILE)"));
}

TEST_CASE("tcp set-up: who listens for a rank that cannot connect has its reason") {
  const auto server = StartStoreServer();
  auto store = Store::Connect("127.0.0.1", server->port(), kTimeout);
  auto listeners_store = Store::Connect("127.0.0.1", server->port(), kTimeout);
  REQUIRE((store.ok() && listeners_store.ok()));
  const Endpoint lower{0, "host0", "127.0.0.1", {1}}, higher{1, "host1", "127.0.0.1", {2}};
  const auto deadline = Clock::now() + kTimeout;
  auto listening = std::async(std::launch::async, [&] {
    return ConnectChain(**listeners_store, lower, {}, higher, nullptr, deadline).status();
  });
  REQUIRE((*store)->Wait({"port/0"}, kTimeout).ok());
  {
    const ddprun::testing::NoMoreDescriptors none(getpid());
    const auto links = ConnectChain(**store, higher, lower, {}, nullptr, deadline);
    CHECK(absl::IsUnavailable(links.status()));
  }
  const absl::Status told = listening.get();
  CHECK_MESSAGE(absl::IsUnavailable(told), told.ToString());
  CHECK(told.message() == Contains("rank 1 did not connect: connect to rank 0 at 127.0.0.1: "));
  CHECK(told.message() == Contains("Too many open files"));
}

TEST_CASE("tcp set-up: who listens looks for news on a connection of its own") {
  const auto server = StartStoreServer();
  auto store = Store::Connect("127.0.0.1", server->port(), kTimeout);
  REQUIRE(store.ok());
  ddprun::testing::AskedStore asked(**store);
  const Endpoint lower{0, "host0", "127.0.0.1", {1}}, higher{1, "host1", "127.0.0.1", {2}};
  const auto links =
      ConnectChain(asked, lower, {}, higher, nullptr, Clock::now() + std::chrono::seconds(3));
  CHECK(absl::IsDeadlineExceeded(links.status()));
  CHECK_FALSE(asked.has_been_asked);
  CHECK(asked.longest <= std::chrono::seconds(2));
  CHECK(asked.longest > std::chrono::seconds(0));
}

TEST_CASE("tcp set-up: a rank that has no memory to take links in ends, and says so") {
  const auto server = StartStoreServer();
  auto store = Store::Connect("127.0.0.1", server->port(), kTimeout);
  REQUIRE(store.ok());
  const Endpoint lower{0, "host0", "127.0.0.1", {1}}, higher{1, "host1", "127.0.0.1", {2}};
  const auto deadline = Clock::now() + kTimeout;
  absl::Status status;
  {
    const ddprun::testing::NoMemoryOnNewThreads none;
    status = ConnectChain(**store, lower, {}, higher, nullptr, deadline).status();
  }
  CHECK_MESSAGE(absl::IsResourceExhausted(status), status.ToString());
  CHECK(status.message() == Contains("take the links to other nodes: "));
  const auto links = ConnectChain(**store, higher, lower, {}, nullptr, deadline);
  CHECK(links.status().message() == "rank 0 does not listen: " + std::string(status.message()));
}

TEST_CASE("tcp set-up: who answers without knowing the nonce is not taken for the rank") {
  const auto server = StartStoreServer();
  auto store = Store::Connect("127.0.0.1", server->port(), kTimeout);
  REQUIRE(store.ok());
  // Somebody else's listener stands where the store says rank 0 is: it believes anything.
  const Nonce theirs = {9, 9, 9}, ours = {1, 2, 3};
  auto impostor = Acceptor::Listen("127.0.0.1", 0, theirs, nullptr);
  REQUIRE(impostor.ok());
  REQUIRE((*store)->Set("port/0", absl::StrCat((*impostor)->port())).ok());
  std::thread answering([&] {
    auto peers = (*impostor)->Await({1}, Clock::now() + kTimeout);
    if (!peers.ok()) return;
    const int socket = (*peers)[0].socket.get();
    CHECK(send(socket, theirs.data(), theirs.size(), MSG_NOSIGNAL) == 16);
  });
  const Endpoint self{1, "host1", "127.0.0.1", ours}, lower{0, "host0", "127.0.0.1", theirs};
  auto links = ConnectChain(**store, self, lower, {}, nullptr, Clock::now() + kTimeout);
  answering.join();
  CHECK(absl::IsUnauthenticated(links.status()));
  CHECK(links.status().message() == "who answers at 127.0.0.1 is not rank 0 of this round");
}

// Who knows all that is in the store, but not the key, is nobody.
TEST_CASE("tcp set-up: strangers without the round's key are dropped, and the sealed group forms") {
  Forming forming(true, std::string(32, 'k'));
  std::vector<Intruder> intruders;
  for (int target : {0, 1}) {
    std::vector<std::string> sayings = Sayings(forming, target, 1 - target);
    sayings.push_back(Bytes(MakeHello(forming.NonceOf(target), target + 1, target)));
    const auto other_key = LinkKey::Make(std::string(32, 'j'));
    REQUIRE(other_key.ok());
    const Hello hello = MakeSealedHello(target + 1, target);
    const Key guessed =
        LinkSecrets(**other_key, forming.NonceOf(target), hello, Nonce{}).HelloProof();
    sayings.push_back(Bytes(hello) + std::string(guessed.begin(), guessed.end()));
    sayings.push_back(Bytes(hello));  // and nothing more
    for (const std::string& saying : sayings) {
      intruders.emplace_back(forming.PortOf(target));
      intruders.back().Say(saying);
    }
  }
  CheckDroppedBeforeItForms(intruders, forming);
}

TEST_CASE("tcp set-up: a listener with another key is named") {
  const auto server = StartStoreServer();
  auto store = Store::Connect("127.0.0.1", server->port(), kTimeout);
  REQUIRE(store.ok());
  const auto ours = LinkKey::Make(std::string(32, 'k')),
             theirs = LinkKey::Make(std::string(32, 'j'));
  REQUIRE(ours.ok());
  auto acceptor = Acceptor::Listen("127.0.0.1", 0, Nonce{1}, *theirs);
  REQUIRE(acceptor.ok());
  REQUIRE((*store)->Set("port/0", absl::StrCat((*acceptor)->port())).ok());
  std::thread listening([&] { (void)(*acceptor)->Await({1}, Clock::now() + kTimeout); });
  const Endpoint self{1, "host1", "127.0.0.1", Nonce{2}}, lower{0, "host0", "127.0.0.1", Nonce{1}};
  auto links = ConnectChain(**store, self, lower, {}, *ours, Clock::now() + kTimeout);
  (*acceptor)->Stop();
  listening.join();
  CHECK(absl::IsUnauthenticated(links.status()));
  CHECK(links.status().message() == Contains("is not rank 0 of this round, or has another key"));
}

}  // namespace
}  // namespace ddp::internal
