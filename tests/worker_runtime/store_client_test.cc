#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "ddp/store.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/store/store_server.h"
#include "tests/support/contains.h"
#include "tests/support/loopback.h"
#include "tests/support/scarce_descriptors.h"
#include "tests/support/store_server.h"
#include "tests/support/virtual_clock.h"
#include "worker_runtime/store_client.h"

namespace ddp {
namespace {

using ddprun::rendezvous::StoreServer;
using ddprun::testing::StartStoreServer;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLong{30};

std::unique_ptr<Store> Connect(const StoreServer& server, milliseconds timeout = kLong) {
  auto store = Store::Connect("127.0.0.1", server.port(), timeout);
  REQUIRE_MESSAGE(store.ok(), store.status().ToString());
  return *std::move(store);
}

TEST_CASE("store client: what one client sets the other gets") {
  const auto server = StartStoreServer();
  const auto writer = Connect(*server);
  const auto reader = Connect(*server);
  const std::string value("a\0b", 3);
  REQUIRE(writer->Set("key", value).ok());
  CHECK(reader->Get("key", kLong).value() == value);
  CHECK(reader->Check({"key"}).value());
  CHECK_FALSE(reader->Check({"key", "other"}).value());
  CHECK(reader->KeyCount().value() == 1);
  CHECK(reader->Delete("key").value());
  CHECK_FALSE(reader->Delete("key").value());
}

TEST_CASE("store client: a get waits for the set of another client") {
  const auto server = StartStoreServer();
  const auto writer = Connect(*server);
  const auto reader = Connect(*server);
  absl::StatusOr<std::string> got = absl::UnknownError("not run");
  std::thread waiting([&] { got = reader->Get("late", kLong); });
  while (server->stats().waiting == 0) std::this_thread::yield();
  CHECK(writer->Set("late", "now").ok());
  waiting.join();
  REQUIRE_MESSAGE(got.ok(), got.status().ToString());
  CHECK(*got == "now");
}

TEST_CASE("store client: counters add up and compare-set answers as PyTorch's") {
  const auto server = StartStoreServer();
  const auto store = Connect(*server);
  CHECK(store->Add("n", 5).value() == 5);
  CHECK(store->Add("n", -7).value() == -2);
  CHECK(store->Get("n", kLong).value() == "-2");
  CHECK(store->CompareSet("c", "x", "y").value() == "x");
  CHECK_FALSE(store->Check({"c"}).value());
  CHECK(store->CompareSet("c", "", "first").value() == "first");
  CHECK(store->CompareSet("c", "other", "second").value() == "first");
  CHECK(store->CompareSet("c", "first", "second").value() == "second");
}

TEST_CASE("store client: a wait that times out names its keys and leaves the connection usable") {
  const auto server = StartStoreServer();
  const auto store = Connect(*server);
  REQUIRE(store->Set("there", "1").ok());
  // lower bound: nobody sets it
  const absl::Status status = store->Wait({"there", "absent"}, milliseconds(20));
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(status.message() == Contains("absent"));
  CHECK(server->stats().waiting == 0);
  CHECK(store->Get("there", kLong).value() == "1");
}

// A peer that takes one connection and answers what the test says.
class ScriptedPeer {
 public:
  // Not listening: its port is its own, and refuses.
  enum class Start { kListening, kRefusing };

  explicit ScriptedPeer(Start start = Start::kListening)
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = ddprun::testing::Loopback(0);
    socklen_t size = sizeof(address);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(bind(listener_.get(), raw, size) == 0);
    if (start == Start::kListening) Listen();
    REQUIRE(getsockname(listener_.get(), raw, &size) == 0);
    port_ = ntohs(address.sin_port);
  }
  uint16_t port() const { return port_; }
  void Listen() { REQUIRE(listen(listener_.get(), 4) == 0); }
  void Accept() { connection_.Reset(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }
  std::string Receive(size_t size) {
    std::string bytes(size, '\0');
    const ssize_t count = recv(connection_.get(), bytes.data(), size, MSG_WAITALL);
    bytes.resize(count < 0 ? 0 : static_cast<size_t>(count));
    return bytes;
  }
  void Send(const std::string& bytes) {
    send(connection_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Accepts, and answers the greeting as a store does.
  void Greet() {
    Accept();
    Send(Receive(10).substr(6));
  }
  void Close() { connection_.Reset(); }

 private:
  ddprun::UniqueFd listener_;
  ddprun::UniqueFd connection_;
  uint16_t port_ = 0;
};

// What the client makes of a WAIT that times out and is cancelled with `answer`.
absl::Status WaitCancelledWith(const std::string& answer, bool* is_usable) {
  ScriptedPeer peer;
  std::thread script([&] {
    peer.Greet();
    peer.Receive(1 + 8 + 8 + 2);  // WAIT for "/k".
    peer.Receive(1);              // CANCEL_WAIT: the client's time is over.
    peer.Send(answer);
    peer.Receive(1 + 8 + 2 + 8);  // ADD to "/n".
    peer.Send(std::string("\x07\0\0\0\0\0\0\0", 8));
    peer.Close();
  });
  auto store = Store::Connect("127.0.0.1", peer.port(), kLong);
  REQUIRE_MESSAGE(store.ok(), store.status().ToString());
  // lower bound: the peer answers when this is over
  const absl::Status status = (*store)->Wait({"k"}, milliseconds(10));
  const auto sum = (*store)->Add("n", 1);
  *is_usable = sum.ok() && *sum == 7;
  store->reset();
  script.join();
  return status;
}

TEST_CASE("store client: a cancelled wait takes the answer, also when the key came just before") {
  bool is_usable = false;
  CHECK(absl::IsDeadlineExceeded(WaitCancelledWith(std::string("\1", 1), &is_usable)));
  CHECK(is_usable);
  CHECK(WaitCancelledWith(std::string("\0\1", 2), &is_usable).ok());
  CHECK(is_usable);
  CHECK(absl::IsUnavailable(WaitCancelledWith(std::string("\5", 1), &is_usable)));
  CHECK_FALSE(is_usable);
}

TEST_CASE("store client: connects to a store that comes late") {
  ScriptedPeer peer(ScriptedPeer::Start::kRefusing);
  absl::StatusOr<std::unique_ptr<Store>> store = absl::UnknownError("not run");
  std::thread connecting([&] { store = Store::Connect("127.0.0.1", peer.port(), kLong); });
  peer.Listen();
  peer.Greet();
  connecting.join();
  CHECK_MESSAGE(store.ok(), store.status().ToString());
}

// Stands still during an attempt to connect; the first pause after one lasts for kLimit.
class PausingClock final : public ddprun::Clock {
 public:
  static constexpr seconds kLimit{5};  // no more than an attempt has

  ddprun::TimePoint Now() const override { return now_; }
  ddprun::Duration Left(ddprun::TimePoint until) const override {
    if (until < now_ + kLimit) now_ += kLimit;
    return ddprun::testing::VirtualClock::kSlice;
  }

 private:
  mutable ddprun::TimePoint now_{std::chrono::hours(1)};
};

TEST_CASE("store client: giving up names the address and the last error") {
  const ScriptedPeer peer(ScriptedPeer::Start::kRefusing);
  const PausingClock clock;
  const auto store = internal::ConnectStore("127.0.0.1", peer.port(), PausingClock::kLimit, clock);
  CHECK(absl::IsDeadlineExceeded(store.status()));
  const std::string message(store.status().message());
  CHECK(message == Contains("127.0.0.1:" + std::to_string(peer.port())));
  CHECK(message == Contains("Connection refused"));
}

TEST_CASE("store client: a process without a descriptor gives up at once, and says so") {
  const auto server = StartStoreServer();
  const ddprun::testing::NoMoreDescriptors none(getpid());
  const auto store = Store::Connect("127.0.0.1", server->port(), std::chrono::hours(1));
  CHECK(absl::IsResourceExhausted(store.status()));
  CHECK(store.status().message() == Contains("(EMFILE): this process may have"));
}

TEST_CASE("store client: a name that does not resolve is an error that quotes it") {
  // lower bound: it never resolves
  const auto store = Store::Connect("no-such-host.invalid", 1, milliseconds(100));
  CHECK(absl::IsDeadlineExceeded(store.status()));
  const std::string message(store.status().message());
  CHECK(message == Contains("no-such-host.invalid"));
}

TEST_CASE("store client: a peer that is no store, or never answers, is not believed") {
  ScriptedPeer mute;
  // lower bound: it never answers
  constexpr milliseconds kAWhile(50);
  CHECK(absl::IsDeadlineExceeded(Store::Connect("127.0.0.1", mute.port(), kAWhile).status()));
  ddprun::testing::VirtualClock clock;
  ScriptedPeer web;
  std::thread script([&] {
    web.Accept();
    web.Send("HTTP/1.1 400 Bad Request\r\n");
    web.Receive(1000);  // Until the client is gone.
    clock.Advance(kLong);
  });
  const auto store = internal::ConnectStore("127.0.0.1", web.port(), kLong, clock);
  CHECK(absl::IsDeadlineExceeded(store.status()));
  script.join();
}

TEST_CASE("store client: a lost connection is final and said by every later call") {
  auto server = StartStoreServer();
  const auto store = Connect(*server);
  REQUIRE(store->Add("n", 1).ok());
  server.reset();
  CHECK(absl::IsUnavailable(store->Add("n", 1).status()));
  CHECK(absl::IsUnavailable(store->Wait({"n"}, kLong)));
  CHECK(absl::IsUnavailable(store->Set("n", "1")));
}

TEST_CASE("store client: a store that stops answering is lost after the timeout of Connect") {
  ddprun::testing::VirtualClock clock;
  ScriptedPeer peer;
  std::thread script([&] {
    peer.Greet();
    peer.Receive(1 + 8 + 2 + 8);
    CHECK(clock.AwaitWaitUntil(clock.Now() + kLong));
    clock.Advance(kLong);
    peer.Receive(1);  // Until the client is gone.
  });
  auto store = internal::ConnectStore("127.0.0.1", peer.port(), kLong, clock);
  REQUIRE_MESSAGE(store.ok(), store.status().ToString());
  CHECK(absl::IsDeadlineExceeded((*store)->Add("n", 1).status()));
  CHECK(absl::IsUnavailable((*store)->Add("n", 1).status()));
  store->reset();
  script.join();
}

TEST_CASE("store client: a reply of an impossible length is refused, not allocated") {
  ScriptedPeer peer;
  std::thread script([&] {
    peer.Greet();
    peer.Receive(1 + 8 + 8 + 2);
    peer.Send(std::string(1, '\0'));
    peer.Receive(1 + 8 + 2);
    peer.Send(std::string(8, '\x7f'));
    peer.Receive(1);
  });
  auto store = Store::Connect("127.0.0.1", peer.port(), kLong);
  REQUIRE_MESSAGE(store.ok(), store.status().ToString());
  CHECK(absl::IsUnavailable((*store)->Get("k", kLong).status()));
  store->reset();
  script.join();
}

TEST_CASE("store client: the protocol's limits are checked before a byte is sent") {
  const auto server = StartStoreServer();
  const auto store = Connect(*server);
  const std::string largest(8 << 20, 'v');
  CHECK(store->Set("k", largest).ok());
  CHECK(store->Get("k", kLong).value() == largest);
  CHECK(absl::IsInvalidArgument(store->Set("k", largest + "v")));
  CHECK(store->Set(std::string((8 << 10) - 1, 'k'), "v").ok());
  CHECK(absl::IsInvalidArgument(store->Set(std::string(8 << 10, 'k'), "v")));
  CHECK(absl::IsInvalidArgument(store->Wait(std::vector<std::string>(131073, "k"), kLong)));
  CHECK(store->Add("n", 1).value() == 1);
}

TEST_CASE("store client: user keys carry a slash on the wire, prefixes one more") {
  const auto server = StartStoreServer();
  const auto store = Connect(*server);
  PrefixStore prefixed("round1", *store);
  PrefixStore nested("rank0", prefixed);
  REQUIRE(nested.Set("k", "v").ok());
  CHECK(store->Get("round1/rank0/k", kLong).value() == "v");
  CHECK(prefixed.MultiSet({"a", "b"}, {"1", "2"}).ok());
  CHECK(prefixed.MultiGet({"b", "a"}, kLong).value() == std::vector<std::string>{"2", "1"});
  CHECK(store->Check({"round1/a", "round1/b"}).value());
  CHECK(prefixed.Add("n", 2).value() == 2);
  CHECK(prefixed.CompareSet("n", "2", "3").value() == "3");
  CHECK(prefixed.Delete("n").value());
  CHECK(prefixed.KeyCount().value() == 3);
  CHECK(absl::IsInvalidArgument(prefixed.MultiSet({"a"}, {})));
  // lower bound: nobody sets it
  const absl::Status status = nested.Wait({"absent"}, milliseconds(10));
  CHECK(status.message() == Contains("round1/rank0/absent"));
}

TEST_CASE("store client: multi-get waits for all its keys; of nothing it is nothing") {
  const auto server = StartStoreServer();
  const auto writer = Connect(*server);
  const auto reader = Connect(*server);
  CHECK(reader->MultiGet({}, kLong).value().empty());
  absl::StatusOr<std::vector<std::string>> got = absl::UnknownError("not run");
  std::thread waiting([&] { got = reader->MultiGet({"a", "b"}, kLong); });
  CHECK(writer->Set("a", "1").ok());
  while (server->stats().waiting == 0) std::this_thread::yield();
  CHECK(writer->Set("b", "2").ok());
  waiting.join();
  REQUIRE_MESSAGE(got.ok(), got.status().ToString());
  CHECK(*got == std::vector<std::string>{"1", "2"});
}

}  // namespace
}  // namespace ddp
