// The whole way of an agent into the rendezvous, on real sockets of this machine.
#include "rendezvous/client/connect.h"

#include <doctest/doctest.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/server/coordinator.h"
#include "tests/rendezvous/server/event_log.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/support/contains.h"
#include "tests/support/virtual_clock.h"

namespace ddprun::rendezvous {
namespace {

constexpr Duration kPatience = EventLog::kPatience;
using Mode = RendezvousOptions::Mode;

RendezvousOptions Options(Mode mode, int nodes, uint16_t port,
                          const std::string& host = "127.0.0.1") {
  RendezvousOptions options;
  options.mode = mode;
  options.policy = TestPolicy(nodes, nodes);
  options.endpoint_host = host;
  options.endpoint_port = port;
  return options;
}

void FinishTogether(RendezvousClient& a, EventLog& log_a, RendezvousClient& b, EventLog& log_b) {
  const auto at_a = log_a.Await<Assigned>();
  const auto at_b = log_b.Await<Assigned>();
  REQUIRE_MESSAGE(at_a, log_a.Text());
  REQUIRE_MESSAGE(at_b, log_b.Text());
  CHECK(at_a->assignment.node_rank != at_b->assignment.node_rank);
  CHECK(at_a->assignment.master_port == at_b->assignment.master_port);
  a.ReportSucceeded(at_a->assignment.round, StopRead::kNo);
  b.ReportSucceeded(at_b->assignment.round, StopRead::kNo);
  REQUIRE(log_a.Await<Concluded>());
  REQUIRE(log_b.Await<Concluded>());
  a.AckVerdict();
  b.AckVerdict();
}

// Whichever hosts waits for the other's acknowledgement.
void EndTogether(RendezvousClient& a, EventLog& log_a, RendezvousClient& b, EventLog& log_b) {
  a.EndContact(kPatience);
  b.EndContact(kPatience);
  CHECK_MESSAGE(log_a.Await<ContactEnded>(), log_a.Text());
  CHECK_MESSAGE(log_b.Await<ContactEnded>(), log_b.Text());
}

TEST_CASE("connect: standalone forms a round without any port") {
  EventLog log;
  auto client =
      ConnectRendezvous(Options(Mode::kStandalone, 1, 0, ""), log.handler(), SteadyClock());
  const auto contact = log.Await<ContactMade>();
  REQUIRE(contact);
  CHECK(contact->is_hosted_here);
  CHECK(contact->place == "");
  client->Join(TestNode("a", 4001));
  const auto assigned = log.Await<Assigned>();
  REQUIRE(assigned);
  CHECK(assigned->assignment.master_addr == "127.0.0.1");
  client->ReportSucceeded(assigned->assignment.round, StopRead::kNo);
  REQUIRE(log.Await<Concluded>());
  client->AckVerdict();
  client->EndContact(kPatience);
  CHECK(log.Await<ContactEnded>());
}

TEST_CASE("connect: of two agents on the endpoint's host one hosts, with a proxy set as well") {
  // gRPC would send its bytes to this proxy, even those for 127.0.0.1.
  ReservedPort proxy;
  unsetenv("no_proxy");  // which could spare this host
  unsetenv("no_grpc_proxy");
  setenv("http_proxy", ("http://127.0.0.1:" + std::to_string(proxy.port())).c_str(), 1);
  ReservedPort port;
  EventLog log_a;
  EventLog log_b;
  auto a =
      ConnectRendezvous(Options(Mode::kDynamic, 2, port.port()), log_a.handler(), SteadyClock());
  auto b =
      ConnectRendezvous(Options(Mode::kDynamic, 2, port.port()), log_b.handler(), SteadyClock());
  a->Join(TestNode("a", 4001));
  b->Join(TestNode("b", 4002));
  FinishTogether(*a, log_a, *b, log_b);
  EndTogether(*b, log_b, *a, log_a);
  unsetenv("http_proxy");
}

TEST_CASE(
    "connect: the agent that hosts and the one that comes are told where the coordinator is") {
  ReservedPort port;
  const std::string place = "127.0.0.1:" + std::to_string(port.port());
  EventLog log_a;
  EventLog log_b;
  auto a =
      ConnectRendezvous(Options(Mode::kDynamic, 2, port.port()), log_a.handler(), SteadyClock());
  RendezvousOptions as_client = Options(Mode::kDynamic, 2, port.port());
  as_client.is_host = false;
  auto b = ConnectRendezvous(std::move(as_client), log_b.handler(), SteadyClock());
  a->Join(TestNode("a", 4001));
  b->Join(TestNode("b", 4002));
  const auto at_a = log_a.Await<ContactMade>();
  const auto at_b = log_b.Await<ContactMade>();
  REQUIRE_MESSAGE(at_a, log_a.Text());
  REQUIRE_MESSAGE(at_b, log_b.Text());
  CHECK(at_a->is_hosted_here);
  CHECK(at_a->place == place);
  CHECK_FALSE(at_b->is_hosted_here);
  CHECK(at_b->place == place);
  FinishTogether(*a, log_a, *b, log_b);
  EndTogether(*b, log_b, *a, log_a);
}

TEST_CASE("connect: an agent that is there before its coordinator waits, says so, and gets in") {
  ReservedPort port;
  EventLog early_log;
  EventLog host_log;
  RendezvousOptions early = Options(Mode::kDynamic, 2, port.port());
  early.is_host = false;
  auto client = ConnectRendezvous(early, early_log.handler(), SteadyClock());
  client->Join(TestNode("early", 4001));
  const std::string expected =
      "waiting for the coordinator at 127.0.0.1:" + std::to_string(port.port()) +
      " (last try: Connection refused)";
  // Another word comes first where the machine stood still during a look.
  const auto waiting =
      early_log.Await<Waiting>([&](const Waiting& e) { return e.reason == expected; });
  REQUIRE_MESSAGE(waiting, early_log.Text());
  CHECK(waiting->deadline.has_value());
  auto host =
      ConnectRendezvous(Options(Mode::kDynamic, 2, port.port()), host_log.handler(), SteadyClock());
  host->Join(TestNode("host", 4002));
  FinishTogether(*client, early_log, *host, host_log);
  EndTogether(*client, early_log, *host, host_log);
}

TEST_CASE("connect: static shares its port with the store and keeps the given ranks") {
  ReservedPort port;
  EventLog log_0;
  EventLog log_1;
  std::mutex mutex;
  std::condition_variable arrived;
  std::vector<UniqueFd> store_connections;
  RendezvousOptions first = Options(Mode::kStatic, 2, port.port());
  first.policy.is_static = true;
  first.policy.static_master_addr = "127.0.0.1";
  first.policy.static_master_port = port.port();
  RendezvousOptions second = first;
  first.node_rank = 0;
  second.node_rank = 1;
  first.on_store_connection = [&](UniqueFd fd) {
    const std::lock_guard lock(mutex);
    store_connections.push_back(std::move(fd));
    arrived.notify_all();
  };
  auto b = ConnectRendezvous(second, log_1.handler(), SteadyClock());
  auto a = ConnectRendezvous(first, log_0.handler(), SteadyClock());
  NodeInfo node_0 = TestNode("x", port.port());
  NodeInfo node_1 = TestNode("a", port.port());
  node_0.node_rank = 0;
  node_1.node_rank = 1;
  b->Join(node_1);
  a->Join(node_0);
  const auto assigned = log_0.Await<Assigned>();
  REQUIRE_MESSAGE(assigned, log_0.Text());
  CHECK(assigned->assignment.node_rank == 0);
  CHECK(assigned->assignment.master_port == port.port());
  REQUIRE(log_1.Await<Assigned>());
  const UniqueFd worker = ConnectTo(port.port());
  SendAll(worker.get(), std::string("\0validate", 9));
  std::unique_lock lock(mutex);
  REQUIRE(arrived.wait_for(lock, kPatience, [&] { return !store_connections.empty(); }));
}

TEST_CASE("connect: a port held by another program is an error that names the port") {
  const ForeignServer http("HTTP/1.0 400 Bad request\r\n\r\n");
  const ForeignServer closes("");
  const ForeignServer silent("", false);
  const std::pair<uint16_t, const char*> given[] = {
      {http.port(), "in use by another program"},
      {closes.port(), "in use and closes connections: another program has it"},
      {silent.port(), "in use and silent for 15 s (no answer within 5 s)"}};
  for (const auto& [port, what] : given) {
    EventLog log;
    auto client = ConnectRendezvous(Options(Mode::kDynamic, 1, port), log.handler(), SteadyClock());
    const auto failed = log.Await<RendezvousFailed>();
    REQUIRE_MESSAGE(failed, log.Text());
    const std::string expected = "port " + std::to_string(port);
    CHECK_MESSAGE(failed->message.find(expected) == 0, failed->message);
    CHECK(failed->message == Contains(what));
  }
}

TEST_CASE("connect: a client names a foreign program on the coordinator's port") {
  const ForeignServer http("HTTP/1.0 400 Bad request\r\n\r\n");
  EventLog log;
  RendezvousOptions options = Options(Mode::kDynamic, 1, http.port());
  options.is_host = false;
  auto client = ConnectRendezvous(options, log.handler(), SteadyClock());
  const auto failed = log.Await<RendezvousFailed>();
  REQUIRE(failed);
  CHECK(failed->message == Contains("held by another program"));
  CHECK(failed->message == Contains("HTTP/1.0 400"));
}

TEST_CASE("connect: nobody at the endpoint ends after join_timeout and names what was tried") {
  testing::VirtualClock clock;
  ReservedPort port;
  EventLog log;
  RendezvousOptions options = Options(Mode::kDynamic, 2, port.port(), "localhost");
  options.is_host = false;
  const TimePoint end = clock.Now() + options.policy.join_timeout;
  // No node joins: a join's limit counts from when the client's thread reads it, which may be late.
  auto client = ConnectRendezvous(options, log.handler(), clock);
  clock.Advance(std::chrono::seconds(1));  // what a look has found is told after half of it
  const auto waiting = log.Await<Waiting>();
  REQUIRE_MESSAGE(waiting, log.Text());
  REQUIRE(waiting->deadline);
  CHECK(*waiting->deadline == end);
  clock.Advance(end - clock.Now());
  const auto failed = log.Await<RendezvousFailed>();
  REQUIRE_MESSAGE(failed, log.Text());
  CHECK(failed->message == Contains("localhost:" + std::to_string(port.port()) + " ("));
  CHECK(failed->message == Contains("Connection refused"));
}

TEST_CASE("connect: the name that others would be told must resolve, whoever hosts") {
  for (const Mode mode : {Mode::kStandalone, Mode::kDynamic}) {
    ReservedPort port;
    EventLog log;
    RendezvousOptions options = Options(mode, 1, port.port());
    options.local_addr = "no-such-host.invalid";
    options.local_addr_source = "PET_LOCAL_ADDR";
    auto client = ConnectRendezvous(options, log.handler(), SteadyClock());
    client->Join(TestNode("a"));
    const auto failed = log.Await<RendezvousFailed>();
    REQUIRE_MESSAGE(failed, log.Text());
    const std::string expected = "PET_LOCAL_ADDR: cannot resolve \"no-such-host.invalid\": ";
    CHECK_MESSAGE(failed->message.find(expected) == 0, failed->message);
  }
}

TEST_CASE("connect: a coordinator listens where it is told to, and nowhere else") {
  ReservedPort port;
  EventLog log;
  RendezvousOptions options = Options(Mode::kDynamic, 1, port.port());
  options.listen_host = "127.0.0.1";
  auto client = ConnectRendezvous(options, log.handler(), SteadyClock());
  REQUIRE_MESSAGE(log.Await<ContactMade>(), log.Text());
  CHECK(TryConnectTo(port.port()).is_open());
  CHECK_FALSE(TryConnectTo(port.port(), "127.0.0.2").is_open());
}

TEST_CASE("connect: an address that others are told need not be one of this machine") {
  EventLog log;
  RendezvousOptions options = Options(Mode::kStandalone, 1, 0, "");
  options.local_addr = "192.0.2.7";
  auto client = ConnectRendezvous(options, log.handler(), SteadyClock());
  client->Join(TestNode("a", 4001));
  REQUIRE_MESSAGE(log.Await<Assigned>(), log.Text());
}

TEST_CASE("connect: a client that waits stops at once, without a word more") {
  ReservedPort port;
  EventLog log;
  RendezvousOptions options = Options(Mode::kDynamic, 2, port.port());
  options.is_host = false;
  auto client = ConnectRendezvous(options, log.handler(), SteadyClock());
  client->Join(TestNode("a"));
  REQUIRE(log.Await<Waiting>());
  client->Leave("SIGINT", true);
  client->EndContact(kPatience);
  CHECK(log.Await<ContactEnded>());
  client.reset();
  CHECK(log.Text() != Contains("failed"));
}

// Waits until its coordinator is gone and it has taken its place: `survivor` has no workers.
TEST_CASE("connect: the agent at the endpoint takes the port of one that is gone, and goes on") {
  ReservedPort port;
  EventLog log_a;
  EventLog log_b;
  RendezvousOptions options = Options(Mode::kDynamic, 1, port.port());
  options.policy = TestPolicy(1, 2);
  options.policy.last_call = std::chrono::milliseconds(1);  // no limit: a delay
  auto first = ConnectRendezvous(options, log_a.handler(), SteadyClock());
  REQUIRE_MESSAGE(log_a.Await<ContactMade>(), log_a.Text());
  auto survivor = ConnectRendezvous(options, log_b.handler(), SteadyClock());
  first->Join(TestNode("a", 4001));
  REQUIRE_MESSAGE(log_a.Await<Assigned>(), log_a.Text());
  survivor->Join(TestNode("b", 4002));
  // The machine makes room for it: the round of one node is drained.
  const auto contact = log_b.Await<ContactMade>();
  REQUIRE_MESSAGE(contact, log_b.Text());
  CHECK_FALSE(contact->is_hosted_here);
  first.reset();
  REQUIRE_MESSAGE(log_b.Await<ContactLost>(), log_b.Text());
  const auto hosting = log_b.Await<ContactMade>();
  REQUIRE_MESSAGE(hosting, log_b.Text());
  CHECK(hosting->is_hosted_here);
  CHECK(log_b.Await<ContactRestored>());
  const auto assigned = log_b.Await<Assigned>();
  REQUIRE_MESSAGE(assigned, log_b.Text());
  CHECK(assigned->assignment.node_rank == 0);
  survivor->ReportSucceeded(assigned->assignment.round, StopRead::kNo);
  CHECK_MESSAGE(log_b.Await<Concluded>(), log_b.Text());
}

TEST_CASE("connect: nobody takes the port of a coordinator that runs apart") {
  ReservedPort port;
  EventLog log;
  Coordinator::Options apart;
  apart.is_apart = true;
  apart.listen = Coordinator::Listen{.host = "", .port = port.port()};
  auto coordinator = Coordinator::Start(apart, SteadyClock());
  REQUIRE(coordinator.ok());
  // The endpoint is this machine's.
  auto client =
      ConnectRendezvous(Options(Mode::kDynamic, 2, port.port()), log.handler(), SteadyClock());
  client->Join(TestNode("a"));
  REQUIRE_MESSAGE(log.Await<Waiting>(), log.Text());
  coordinator->reset();
  REQUIRE_MESSAGE(log.Await<ContactLost>([](const ContactLost& e) { return e.is_gone; }),
                  log.Text());
  // It says that it waits; in its stead it would have said that it hosts.
  REQUIRE_MESSAGE(log.Await<Waiting>(), log.Text());
  CHECK(log.Text() != Contains("hosted here"));
  coordinator = Coordinator::Start(apart, SteadyClock());
  REQUIRE_MESSAGE(coordinator.ok(), coordinator.status().ToString());
  CHECK_MESSAGE(log.Await<ContactRestored>(), log.Text());
}

TEST_CASE("connect: a node of the next job waits until the last one has closed its port") {
  ReservedPort port;
  EventLog log_a;
  EventLog log_b;
  auto a =
      ConnectRendezvous(Options(Mode::kDynamic, 1, port.port()), log_a.handler(), SteadyClock());
  a->Join(TestNode("a", 4001));
  const auto at_a = log_a.Await<Assigned>();
  REQUIRE_MESSAGE(at_a, log_a.Text());
  a->ReportSucceeded(at_a->assignment.round, StopRead::kNo);
  REQUIRE(log_a.Await<Concluded>());
  // The verdict is not acknowledged yet: the port stays open.
  auto b =
      ConnectRendezvous(Options(Mode::kDynamic, 1, port.port()), log_b.handler(), SteadyClock());
  b->Join(TestNode("b", 4002));
  const std::string expected = "the job \"run-1\" at 127.0.0.1:" + std::to_string(port.port()) +
                               " is ending; waiting for the next one";
  REQUIRE_MESSAGE(log_b.Await<Waiting>([&](const Waiting& e) { return e.reason == expected; }),
                  log_b.Text());
  a->AckVerdict();
  // Without EndContact: its workers may take their time to die.
  const auto hosting = log_b.Await<ContactMade>();
  REQUIRE_MESSAGE(hosting, log_b.Text());
  CHECK(hosting->is_hosted_here);
  const auto at_b = log_b.Await<Assigned>();
  REQUIRE_MESSAGE(at_b, log_b.Text());
  CHECK(at_b->assignment.instance != at_a->assignment.instance);
}

TEST_CASE("connect: a resolver that hangs holds up neither the end nor the destructor") {
  EventLog log;
  std::mutex mutex;
  std::condition_variable changed;
  bool is_asked = false;
  bool may_answer = false;
  RendezvousOptions options = Options(Mode::kDynamic, 1, 29400, "some.name.example");
  options.resolver = [&](const std::string&, uint16_t) {
    std::unique_lock lock(mutex);
    is_asked = true;
    changed.notify_all();
    changed.wait(lock, [&] { return may_answer; });
    return Resolution{};
  };
  auto client = ConnectRendezvous(options, log.handler(), SteadyClock());
  {
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, kPatience, [&] { return is_asked; }));
  }
  client->EndContact(kPatience);
  CHECK_MESSAGE(log.Await<ContactEnded>(), log.Text());
  {
    const std::lock_guard lock(mutex);
    may_answer = true;
  }
  changed.notify_all();
  client.reset();
}

}  // namespace
}  // namespace ddprun::rendezvous
