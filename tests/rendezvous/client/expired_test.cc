// What both sides say of a certificate that has expired since its machine has read it.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/elected.h"
#include "rendezvous/client/greet.h"
#include "rendezvous/net/interrupt.h"
#include "rendezvous/net/listening_socket.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/server/coordinator.h"
#include "rendezvous/server/port_listener.h"
#include "rendezvous/tls/stream.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/rendezvous/tls/machine.h"
#include "tests/support/certificates.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::rendezvous {
namespace {

using Identity = std::shared_ptr<const TlsIdentity>;

// Two nodes of one authority; what the second one shows has expired.
struct Nodes {
  Nodes() : good(Read("good", 3600)), expired(Read("expired", 6)) {
    REQUIRE(testing::Eventually([&] { return !expired->Check().ok(); }));
  }
  Identity Read(const std::string& name, long until_s) const {
    const testing::Certificate own =
        testing::MakeServerCertificate(authority, "DNS:" + name, -3600, until_s);
    return Machine(dir, name, own, authority.certificate).Read();
  }
  const testing::TempDir dir;
  const testing::Certificate authority = testing::MakeAuthority();
  const Identity good, expired;
};

// It takes seconds until one has expired.
const Nodes& TheNodes() {
  static const Nodes nodes;
  return nodes;
}

// The port of a coordinator, as far as strangers get.
struct Port {
  explicit Port(const Identity& identity) {
    auto door = ListenOn("127.0.0.1", 0);
    REQUIRE(door.ok());
    number = LocalPort(door->get());
    PortListener::Handlers handlers;
    handlers.hello_reply = [] { return std::string("ddprun"); };
    handlers.identity = identity;
    handlers.on_refused = [this](const std::string& text) { refused.set_value(text); };
    std::vector<UniqueFd> doors;
    doors.push_back(*std::move(door));
    auto started = PortListener::Start(std::move(doors), std::move(handlers), SteadyClock());
    REQUIRE(started.ok());
    listener = *std::move(started);
  }
  Looked Greet(const Identity& identity) const {
    Greeting greeting = rendezvous::Greet(*ParseIp("127.0.0.1", number), identity, Interrupt());
    CHECK_FALSE(greeting.hello);
    return std::move(greeting.trouble);
  }
  uint16_t number = 0;
  std::promise<std::string> refused;
  std::unique_ptr<PortListener> listener;
};

TEST_CASE("expired: who greets with such a certificate says so itself, and says nothing else") {
  const Nodes& nodes = TheNodes();
  const ForeignServer other("SSH-2.0-x\r\n");  // to whom something is said it answers
  const Greeting greeting = Greet(*ParseIp("127.0.0.1", other.port()), nodes.expired, Interrupt());
  CHECK(greeting.trouble.outcome == Looked::Outcome::kExpired);
  CHECK(greeting.trouble.is_own);
  CHECK(greeting.trouble.text == std::string(nodes.expired->Check().message()));
  // That nobody listens is worth more, as it says that a coordinator is gone.
  const ReservedPort free;
  const Greeting refused = Greet(*ParseIp("127.0.0.1", free.port()), nodes.expired, Interrupt());
  CHECK(refused.trouble.outcome == Looked::Outcome::kRefused);
}

TEST_CASE("expired: who has such a certificate does not lead a job") {
  const Nodes& nodes = TheNodes();
  Coordinator::Options start;
  start.identity = nodes.expired;
  const ElectedHost host = HostAsLeader({}, std::move(start), SteadyClock());
  CHECK(host.coordinator == nullptr);
  CHECK(host.answer.outcome == Hosted::Outcome::kExpired);
  CHECK(host.answer.text == std::string(nodes.expired->Check().message()));
}

TEST_CASE("expired: the coordinator's certificate is told apart from a stranger's") {
  const Nodes& nodes = TheNodes();
  const Port port(nodes.expired);
  const Looked trouble = port.Greet(nodes.good);
  CHECK(trouble.outcome == Looked::Outcome::kExpired);
  CHECK_FALSE(trouble.is_own);
  CHECK(trouble.text ==
        "by this node's clock the other side's certificate has expired, or its authority's; start "
        "that side again with a new one, or set the clocks right");
}

TEST_CASE("expired: a coordinator says of whom it refuses that its certificate has expired") {
  const Nodes& nodes = TheNodes();
  Port port(nodes.good);
  // A node whose clock is behind connects all the same.
  TlsStream stream(nodes.expired, TlsStream::Role::kClient);
  const UniqueFd fd = ConnectTo(port.number);
  std::string heard;
  SendAll(fd.get(), stream.TakeOutgoing());
  while (!stream.is_ready()) {
    char byte = 0;
    REQUIRE(recv(fd.get(), &byte, 1, 0) == 1);
    REQUIRE(stream.Receive({&byte, 1}, heard));
  }
  SendAll(fd.get(), stream.TakeOutgoing());
  CHECK_FALSE(stream.Receive(ReadToEnd(fd.get()), heard));
  CHECK(stream.trouble() == TlsStream::Trouble::kExpired);
  std::future<std::string> refused = port.refused.get_future();
  REQUIRE(refused.wait_for(testing::kPatience) == std::future_status::ready);
  CHECK(
      refused.get() ==
      "a connection from 127.0.0.1 was refused: by this node's clock the other side's certificate "
      "has expired, or its authority's");
}

}  // namespace
}  // namespace ddprun::rendezvous
