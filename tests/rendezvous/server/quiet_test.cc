// Nothing of gRPC's or Protobuf's reaches our stderr, whatever goes wrong on the wire.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/net/library_log.h"
#include "tests/rendezvous/server/event_log.h"
#include "tests/rendezvous/server/over_sockets.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace ddprun::rendezvous {
namespace {

void MakeTrouble() {
  EventLog log;
  auto coordinator = StartListening(TestPolicy(1, 1));
  Proxy proxy(coordinator->port());
  const auto client = Connect(proxy.port(), TestPolicy(1, 1), log);
  NodeInfo node = TestNode("n");
  node.host = "not utf-8: \xff";
  client->Join(node);
  const auto assigned = log.Await<Assigned>();
  const UniqueFd stranger = ConnectTo(coordinator->port());
  SendAll(stranger.get(), "PRI * garbage\r\n");
  ReadToEnd(stranger.get());
  proxy.Cut();
  const bool is_restored = log.Await<ContactRestored>().has_value();
  coordinator.reset();
  const bool is_lost = log.Await<ContactLost>().has_value();
  REQUIRE(assigned);
  REQUIRE(is_restored);
  REQUIRE(is_lost);
}

TEST_CASE("quiet: broken streams and garbage print nothing, and are there for the log") {
  setenv("GRPC_VERBOSITY", "DEBUG", 1);  // before gRPC starts: all that it could say
  std::atomic<int> lines{0};
  const LibraryLogScope scope([&lines](const std::string&) { ++lines; });
  const testing::TempDir directory;
  const std::string path = directory.File("stderr");
  const UniqueFd kept(dup(STDERR_FILENO));
  {
    const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    REQUIRE(dup2(file.get(), STDERR_FILENO) >= 0);
  }
  MakeTrouble();
  dup2(kept.get(), STDERR_FILENO);
  CHECK(testing::ReadFile(path) == "");
  CHECK(lines > 0);
}

}  // namespace
}  // namespace ddprun::rendezvous
