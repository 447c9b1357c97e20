#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "ddp/store.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/store/store_server.h"

namespace ddp {
namespace {

using ddprun::rendezvous::StoreServer;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLong{30};

std::unique_ptr<StoreServer> StartServer(StoreServer::Options options = {}) {
  auto server = StoreServer::Start(options);
  REQUIRE_MESSAGE(server.ok(), server.status().ToString());
  return *std::move(server);
}

std::unique_ptr<Store> Connect(const StoreServer& server, milliseconds timeout = kLong) {
  auto store = Store::Connect("127.0.0.1", server.port(), timeout);
  REQUIRE_MESSAGE(store.ok(), store.status().ToString());
  return *std::move(store);
}

TEST_CASE("store client: what one client sets the other gets") {
  const auto server = StartServer();
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
  const auto server = StartServer();
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
  const auto server = StartServer();
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
  const auto server = StartServer();
  const auto store = Connect(*server);
  REQUIRE(store->Set("there", "1").ok());
  const absl::Status status = store->Wait({"there", "absent"}, milliseconds(20));
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK_MESSAGE(status.message().find("absent") != std::string::npos, status.ToString());
  CHECK(server->stats().waiting == 0);
  CHECK(store->Get("there", kLong).value() == "1");
}

}  // namespace
}  // namespace ddp
