// Who is believed where the job has a token: agents, those who look on, and workers of other nodes
// that look for their store.
#include <doctest/doctest.h>

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/connect.h"
#include "rendezvous/client/look_on.h"
#include "rendezvous/client/tunnels.h"
#include "rendezvous/net/listening_socket.h"
#include "rendezvous/server/coordinator.h"
#include "rendezvous/server/port_listener.h"
#include "rendezvous/store/store_server.h"
#include "rendezvous/tls/identity.h"
#include "rendezvous/tls/stream.h"
#include "rendezvous/wire/hello.h"
#include "tests/rendezvous/server/event_log.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/rendezvous/store/raw_client.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

namespace ddprun::rendezvous {
namespace {

using Mode = ContactOptions::Mode;
using Kind = RendezvousFailed::Kind;

constexpr Duration kPatience = EventLog::kPatience;

std::shared_ptr<const TlsIdentity> Token(const std::string& text) {
  auto identity = TlsIdentity::OfToken(text);
  REQUIRE_MESSAGE(identity.ok(), identity.status().ToString());
  return *std::move(identity);
}

// Empty: none.
std::shared_ptr<Tunnels> TunnelsWith(const std::string& token) {
  if (token.empty()) return nullptr;
  auto tunnels = Tunnels::Start(Token(token));
  REQUIRE_MESSAGE(tunnels.ok(), tunnels.status().ToString());
  return *std::move(tunnels);
}

std::unique_ptr<Coordinator> StartCoordinator(const std::string& token, int nodes) {
  Coordinator::Options options;
  options.policy = TestPolicy(nodes, nodes);
  options.listen = Coordinator::Listen{.host = "127.0.0.1", .port = 0};
  if (!token.empty()) options.identity = Token(token);
  auto coordinator = Coordinator::Start(std::move(options), SteadyClock());
  REQUIRE_MESSAGE(coordinator.ok(), coordinator.status().ToString());
  return *std::move(coordinator);
}

struct Agent {
  Agent(uint16_t port, const std::string& token, int nodes, const std::string& id) {
    RendezvousOptions options;
    options.mode = Mode::kDynamic;
    options.policy = TestPolicy(nodes, nodes);
    options.endpoint_host = "127.0.0.1";
    options.endpoint_port = port;
    options.is_host = false;
    options.tunnels = TunnelsWith(token);
    client = ConnectRendezvous(std::move(options), log.handler(), SteadyClock());
    client->Join(TestNode(id, 4001));
  }
  EventLog log;
  std::unique_ptr<RendezvousClient> client;
};

void Finish(Agent& a, Agent& b) {
  for (Agent* agent : {&a, &b}) {
    const auto assigned = agent->log.Await<Assigned>();
    REQUIRE_MESSAGE(assigned, agent->log.Text());
    agent->client->ReportSucceeded(assigned->assignment.round, StopRead::kNo);
  }
  for (Agent* agent : {&a, &b}) {
    REQUIRE_MESSAGE(agent->log.Await<Concluded>(), agent->log.Text());
    agent->client->AckVerdict();
    agent->client->EndContact(kPatience);
  }
  for (Agent* agent : {&a, &b}) {
    CHECK_MESSAGE(agent->log.Await<ContactEnded>(), agent->log.Text());
  }
}

TEST_CASE("trust: agents with the coordinator's token form a job from its beginning to its end") {
  const auto coordinator = StartCoordinator("a token", 2);
  Agent a(coordinator->port(), "a token", 2, "a"), b(coordinator->port(), "a token", 2, "b");
  Finish(a, b);
}

TEST_CASE("trust: who lacks the token or has another one is told so, and disturbs nobody") {
  const auto coordinator = StartCoordinator("a token", 2);
  Agent a(coordinator->port(), "a token", 2, "a");
  struct Row {
    const char* token;
    const char* why;
  };
  for (const Row& row :
       {Row{"another token", "its token is another one"},
        Row{"", "it asks for TLS, and this node was given no token and no certificate"}}) {
    Agent stranger(coordinator->port(), row.token, 2, "b");
    const auto failed = stranger.log.Await<RendezvousFailed>();
    REQUIRE_MESSAGE(failed, stranger.log.Text());
    CHECK(failed->kind == Kind::kDistrusted);
    CHECK(failed->message == Contains(row.why));
    CHECK(failed->message == Contains("--token-file"));
  }
  Agent b(coordinator->port(), "a token", 2, "b");
  Finish(a, b);
}

TEST_CASE("trust: an agent with a token joins no coordinator that has none") {
  const auto coordinator = StartCoordinator("", 1);
  Agent agent(coordinator->port(), "a token", 1, "a");
  const auto failed = agent.log.Await<RendezvousFailed>();
  REQUIRE_MESSAGE(failed, agent.log.Text());
  CHECK(failed->kind == Kind::kDistrusted);
  CHECK(failed->message == Contains("it runs without a token"));
}

TEST_CASE("trust: programs that are not ours are told apart from coordinators without a token") {
  for (const char* answer : {"SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n"}) {
    const ForeignServer server(answer);
    Agent agent(server.port(), "a token", 1, "a");
    const auto failed = agent.log.Await<RendezvousFailed>();
    REQUIRE_MESSAGE(failed, agent.log.Text());
    CHECK(failed->kind == Kind::kRendezvous);
    CHECK(failed->message == Contains("is held by another program"));
  }
}

TEST_CASE("trust: an agent joins no coordinator of another user on loopback") {
  if (geteuid() != 0) return testing::SkipTest("only root makes processes of other users");
  // A coordinator whose sockets are nobody's, as far as the kernel tells.
  syscall(SYS_setfsuid, 65534);  // of this thread alone
  auto door = ListenOn("127.0.0.1", 0);
  syscall(SYS_setfsuid, 0);
  REQUIRE(door.ok());
  const uint16_t port = LocalPort(door->get());
  std::thread squatter([&] {
    UniqueFd fd;
    pollfd ready{door->get(), POLLIN, 0};
    while (!fd.is_open() && poll(&ready, 1, 30000) == 1) {
      fd.Reset(accept(door->get(), nullptr, nullptr));
    }
    SendAll(fd.get(), MakeHelloReply({"run-1", false}));
    shutdown(fd.get(), SHUT_WR);  // as a coordinator does
    ReadToEnd(fd.get());
  });
  Agent agent(port, "", 1, "a");
  const auto failed = agent.log.Await<RendezvousFailed>();
  squatter.join();
  REQUIRE_MESSAGE(failed, agent.log.Text());
  CHECK(failed->kind == Kind::kDistrusted);
  CHECK(failed->message == Contains("it belongs to another user of this machine (uid 65534)"));
}

// As a coordinator does that serves its own user alone.
TEST_CASE("trust: an agent is told whose the port on loopback is that closes without a word") {
  if (geteuid() != 0) return testing::SkipTest("only root makes processes of other users");
  syscall(SYS_setfsuid, 65534);  // of this thread alone
  auto door = ListenOn("127.0.0.1", 0);
  syscall(SYS_setfsuid, 0);
  REQUIRE(door.ok());
  std::thread squatter([&] {
    UniqueFd fd;
    pollfd ready{door->get(), POLLIN, 0};
    while (!fd.is_open() && poll(&ready, 1, 30000) == 1) {
      fd.Reset(accept(door->get(), nullptr, nullptr));
    }
  });
  Agent agent(LocalPort(door->get()), "", 1, "a");
  const auto failed = agent.log.Await<RendezvousFailed>();
  squatter.join();
  REQUIRE_MESSAGE(failed, agent.log.Text());
  CHECK(failed->kind == Kind::kDistrusted);
  CHECK(failed->message == Contains("it belongs to another user of this machine (uid 65534)"));
}

TEST_CASE("trust: who looks on needs the token, too") {
  const auto coordinator = StartCoordinator("a token", 1);
  const auto look = [&](const std::shared_ptr<const TlsIdentity>& identity) {
    return LookOn("127.0.0.1", coordinator->port(), identity, std::chrono::seconds(30));
  };
  CHECK(look(Token("a token")).ok());
  for (const auto& identity : {Token("another token"), std::shared_ptr<const TlsIdentity>()}) {
    const auto answers = look(identity);
    CHECK(absl::IsUnauthenticated(answers.status()));
    CHECK(answers.status().message() == Contains("--token-file"));
  }
}

TEST_CASE("trust: a stranger learns nothing but that a port is open and speaks TLS") {
  const auto coordinator = StartCoordinator("a token", 1);
  for (const std::string bytes : {"\x01 ddprun/1 hello\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                                  "GET / HTTP/1.1\r\n\r\n"}) {
    const UniqueFd fd = ConnectTo(coordinator->port());
    SendAll(fd.get(), bytes);
    CHECK(ReadToEnd(fd.get()) == kTlsAlert);
  }
}

// The store of another node, and what leads to it from here.
struct FarStore {
  explicit FarStore(const std::string& token) : tunnels(TunnelsWith(token)) {
    StoreServer::Options options;
    options.bind = StoreServer::Bind::kNone;
    auto served = StoreServer::Start(options, SteadyClock());
    REQUIRE(served.ok());
    server = *std::move(served);
    auto socket = ListenOn("127.0.0.1", 0);
    REQUIRE(socket.ok());
    address = LocalAddress(socket->get());
    PortListener::Handlers handlers;
    handlers.identity = Token("a token");
    handlers.on_store = [this](UniqueFd fd) { server->Adopt(std::move(fd)); };
    std::vector<UniqueFd> sockets;
    sockets.push_back(*std::move(socket));
    auto started = PortListener::Start(std::move(sockets), std::move(handlers), SteadyClock());
    REQUIRE(started.ok());
    listener = *std::move(started);
  }
  // The port on which workers of this node find it.
  uint16_t Relay() const {
    auto door = ListenOn("127.0.0.1", 0);
    REQUIRE(door.ok());
    const uint16_t port = LocalPort(door->get());
    tunnels->Relay(*std::move(door), address);
    return port;
  }
  SocketAddress address;
  std::unique_ptr<StoreServer> server;
  std::unique_ptr<PortListener> listener;
  std::shared_ptr<Tunnels> tunnels;
};

TEST_CASE("trust: workers reach the store of another node through both agents") {
  const FarStore far("a token");
  const uint16_t port = far.Relay();
  RawClient waits(port), sets(port);
  waits.Send(Greeting() + Request(StoreOp::kWait, {"/key"}));
  // More than the sockets on the way hold.
  const std::string value(size_t{8} << 20, 'x');
  sets.Send(Greeting() + Request(StoreOp::kSet, {"/key", value}));
  CHECK(waits.Receive(1) == Byte(kStopWaiting));
  waits.Expect(Request(StoreOp::kGet, {"/key"}), Bytes(value));
  // A worker that ends is missed on the other node.
  sets.Reset();
  CHECK(Eventually([&] { return far.server->stats().open == 1; }));
}

TEST_CASE("trust: more workers at once than there are places for strangers all get in") {
  const FarStore far("a token");
  const uint16_t port = far.Relay();
  std::vector<RawClient> workers;
  for (size_t i = 0; i < 2 * PortListener::kMaxStrangers; ++i) workers.emplace_back(port);
  for (RawClient& worker : workers) worker.Send(Greeting() + Request(StoreOp::kGetNumKeys));
  for (RawClient& worker : workers) CHECK(worker.Receive(8) == Number(0));
}

// More of them than there are places for strangers.
TEST_CASE("trust: those who only look as if they spoke TLS keep nobody out") {
  const auto coordinator = StartCoordinator("a token", 1);
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 600; ++i) {
    strangers.push_back(ConnectTo(coordinator->port()));
    SendAll(strangers.back().get(), "\x16\x03\x01");
  }
  const auto begun = SteadyNow();
  const auto answers = LookOn("127.0.0.1", coordinator->port(), Token("a token"), kPatience);
  CHECK_MESSAGE(answers.ok(), answers.status().ToString());
  // Where they counted as speakers, each would have its second.
  CHECK(SteadyNow() - begun < PortListener::kSilenceLimit / 5);
}

TEST_CASE("trust: what was said before a reset arrives") {
  const FarStore far("a token");
  RawClient reads(far.Relay());
  reads.Expect(Greeting() + Request(StoreOp::kGetNumKeys), Number(0));
  for (int i = 0; i < 20; ++i) {
    TlsStream stream(Token("a token"), TlsStream::Role::kClient, TlsPurpose::kStore);
    RawClient raw(PortOf(far.address));
    std::string ignored;
    while (!stream.is_ready()) {
      raw.Send(stream.TakeOutgoing());
      REQUIRE(stream.Receive(raw.Receive(1), ignored));
    }
    const std::string key = "/key" + std::to_string(i);
    raw.Send(stream.TakeOutgoing());
    stream.Send(Greeting() + Request(StoreOp::kSet, {key, "1"}));
    raw.Send(stream.TakeOutgoing());
    raw.Reset();
    reads.Expect(Request(StoreOp::kWait, {key}), Byte(kStopWaiting));
  }
}

TEST_CASE("trust: the end of a store ends what led to it") {
  FarStore far("a token");
  RawClient worker(far.Relay());
  worker.Expect(Greeting() + Request(StoreOp::kGetNumKeys), Number(0));
  far.server->Close();
  CHECK(worker.IsClosed());
}

// What a client of that purpose and run hears that has the job's token and says `bytes`; nullopt:
// it is not let in.
std::optional<std::string> Heard(uint16_t port, const std::string& run, TlsPurpose purpose,
                                 const std::string& bytes) {
  auto identity = TlsIdentity::OfToken("a token", run);
  REQUIRE(identity.ok());
  TlsStream stream(*std::move(identity), TlsStream::Role::kClient, purpose);
  const UniqueFd fd = ConnectTo(port);
  std::string heard;
  bool is_said = false;
  for (;;) {
    if (stream.is_ready() && !std::exchange(is_said, true)) stream.Send(bytes);
    SendAll(fd.get(), stream.TakeOutgoing());
    std::array<char, 4096> came;
    const ssize_t size = recv(fd.get(), came.data(), came.size(), 0);
    const bool goes_on =
        size > 0 && stream.Receive({came.data(), static_cast<size_t>(size)}, heard);
    if (!goes_on) return is_said ? std::optional(heard) : std::nullopt;
    // gRPC keeps a connection open: its first words are enough.
    if (!heard.empty() && purpose == TlsPurpose::kRendezvous) return heard;
  }
}

constexpr char kHttp2[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";

TEST_CASE("trust: a key opens what it is for, of its run, and nothing else") {
  Coordinator::Options options;
  options.policy = TestPolicy(1, 1);
  options.listen = Coordinator::Listen{.host = "127.0.0.1", .port = 0};
  options.identity = *TlsIdentity::OfToken("a token", "run-1");
  const auto coordinator = Coordinator::Start(std::move(options), SteadyClock());
  REQUIRE(coordinator.ok());
  const uint16_t port = (*coordinator)->port();
  const std::string http2(kHttp2, sizeof(kHttp2) - 1);
  const std::string hello(kHelloRequest, sizeof(kHelloRequest) - 1);
  CHECK(Heard(port, "run-1", TlsPurpose::kRendezvous, http2).value_or("") != "");
  CHECK(Heard(port, "run-1", TlsPurpose::kGreeting, hello) == MakeHelloReply({"run-1", false}));
  CHECK(Heard(port, "run-2", TlsPurpose::kGreeting, hello) == MakeHelloReply({"run-1", false}));
  for (const TlsPurpose purpose : {TlsPurpose::kRendezvous, TlsPurpose::kStore}) {
    CHECK(Heard(port, "run-2", purpose, http2) == std::nullopt);
    CHECK(Heard(port, "run-1", purpose, hello) == "");
  }
  CHECK(Heard(port, "run-1", TlsPurpose::kGreeting, http2) == "");
  CHECK(Heard(port, "run-1", TlsPurpose::kStore, http2) == "");
}

TEST_CASE("trust: without the token nobody reaches a store, not even through a relay") {
  const FarStore far("another token");
  RawClient worker(far.Relay());
  worker.Send(Greeting());
  CHECK(worker.IsClosed());
  const UniqueFd stranger = ConnectTo(PortOf(far.address));
  SendAll(stranger.get(), Greeting());
  CHECK(ReadToEnd(stranger.get()) == kTlsAlert);
  CHECK(far.server->stats().accepted == 0);
}

TEST_CASE("trust: a new relay ends the connections of the one before") {
  const FarStore far("a token");
  RawClient old(far.Relay());
  old.Expect(Greeting() + Request(StoreOp::kGetNumKeys), Number(0));
  RawClient fresh(far.Relay());
  fresh.Expect(Greeting() + Request(StoreOp::kGetNumKeys), Number(0));
  CHECK(old.IsClosed());
}

}  // namespace
}  // namespace ddprun::rendezvous
