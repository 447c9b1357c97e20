// What happens to a job when connections break or strangers come, over real sockets.
#include <doctest/doctest.h>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/server/port_listener.h"
#include "tests/rendezvous/server/event_log.h"
#include "tests/rendezvous/server/over_sockets.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/support/contains.h"
#include "tests/support/virtual_clock.h"

namespace ddprun::rendezvous {
namespace {

TEST_CASE("reattach: a cut connection is replaced and the round goes on") {
  EventLog log;
  auto coordinator = StartListening(TestPolicy(1, 1));
  Proxy proxy(coordinator->port());
  auto client = Connect(proxy.port(), TestPolicy(1, 1), log);
  client->Join(TestNode("a"));
  const auto assigned = log.Await<Assigned>();
  REQUIRE(assigned);
  proxy.Cut();
  const auto lost = log.Await<ContactLost>();
  REQUIRE_MESSAGE(lost, log.Text());
  CHECK_FALSE(lost->is_gone);
  // Said while there is no contact, or on the way to the new one: it must arrive all the same.
  client->ReportSucceeded(assigned->assignment.round, StopRead::kNo);
  CHECK(log.Await<ContactRestored>());
  const auto verdict = log.Await<Concluded>();
  REQUIRE_MESSAGE(verdict, log.Text());
  CHECK(verdict->verdict.exit_code == 0);
  const std::string text = log.Text();
  CHECK(text != Contains("round 2"));
  CHECK_MESSAGE(CountOf(text, "contact made") == 1, text);
}

TEST_CASE("reattach: an agent that is cut off while it waits gets its place") {
  EventLog log_a;
  EventLog log_b;
  auto coordinator = StartListening(TestPolicy(2, 2));
  Proxy proxy(coordinator->port());
  auto a = Connect(proxy.port(), TestPolicy(2, 2), log_a);
  a->Join(TestNode("a"));
  REQUIRE(log_a.Await<Waiting>());
  proxy.Cut();
  REQUIRE(log_a.Await<ContactLost>());
  auto b = Connect(coordinator->port(), TestPolicy(2, 2), log_b);
  b->Join(TestNode("b"));
  CHECK_MESSAGE(log_a.Await<Assigned>(), log_a.Text());
  CHECK_MESSAGE(log_b.Await<Assigned>(), log_b.Text());
}

TEST_CASE(
    "reattach: a coordinator's process that is gone shows as refused, one that is back as "
    "contact") {
  EventLog log;
  const ReservedPort port;
  auto coordinator = StartListening(TestPolicy(1, 1), port.port());
  auto client = Connect(port.port(), TestPolicy(1, 1), log);
  client->Join(TestNode("a"));
  const auto first = log.Await<Assigned>();
  REQUIRE(first);
  coordinator.reset();
  REQUIRE_MESSAGE(log.Await<ContactLost>([](const ContactLost& e) { return e.is_gone; }),
                  log.Text());
  coordinator = StartListening(TestPolicy(1, 1), port.port());
  REQUIRE_MESSAGE(log.Await<ContactRestored>(), log.Text());
  // It has no memory of the round, but the node has: the round goes on to its end.
  client->ReportSucceeded(first->assignment.round, StopRead::kNo);
  REQUIRE_MESSAGE(log.Await<Concluded>(), log.Text());
  CHECK(log.Text() != Contains("drained"));
}

TEST_CASE("reattach: a coordinator apart is restarted while workers run, and nothing happens") {
  EventLog log;
  const ReservedPort port;
  const auto start = [&port] {
    Coordinator::Options options;
    options.is_apart = true;
    options.listen = Coordinator::Listen{.host = "", .port = port.port()};
    auto started = Coordinator::Start(std::move(options), SteadyClock());
    REQUIRE_MESSAGE(started.ok(), started.status().ToString());
    return *std::move(started);
  };
  Policy policy = TestPolicy(1, 1);
  policy.evict_after = std::chrono::seconds(60);
  auto coordinator = start();
  auto client = Connect(port.port(), policy, log);
  client->Join(TestNode("a"));
  const auto first = log.Await<Assigned>();
  REQUIRE_MESSAGE(first, log.Text());
  coordinator.reset();
  REQUIRE_MESSAGE(log.Await<ContactLost>([](const ContactLost& e) { return e.is_gone; }),
                  log.Text());
  coordinator = start();
  REQUIRE_MESSAGE(log.Await<ContactRestored>(), log.Text());
  client->ReportSucceeded(first->assignment.round, StopRead::kNo);
  const auto verdict = log.Await<Concluded>();
  REQUIRE_MESSAGE(verdict, log.Text());
  CHECK(verdict->verdict.exit_code == 0);
  CHECK(log.Text() != Contains("drained"));
  CHECK(log.Text() != Contains("round 2"));
}

TEST_CASE("reattach: garbage, TLS and oversized requests are dropped and the job goes on") {
  EventLog log;
  auto coordinator = StartListening(TestPolicy(1, 1));
  const uint16_t port = coordinator->port();
  auto client = Connect(port, TestPolicy(1, 1), log);
  client->Join(TestNode("a"));
  const auto assigned = log.Await<Assigned>();
  REQUIRE(assigned);
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  const std::string huge_frame("\xff\xff\xff\0\0\0\0\0\1", 9);
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\x16\x03\x01\x02\x00\x01"),
        std::string("\0no store here", 14), std::string("P\xff\xfe garbage after the first byte"),
        preface + settings + huge_frame + std::string(1 << 20, 'x'),
        std::string(1 << 20, '\xee')}) {
    const UniqueFd stranger = ConnectTo(port);
    SendAll(stranger.get(), bytes);
    const std::string end = ReadToEnd(stranger.get());
    CHECK_MESSAGE(end != Contains("(still open)"), bytes.substr(0, 20));
  }
  client->ReportSucceeded(assigned->assignment.round, StopRead::kNo);
  CHECK_MESSAGE(log.Await<Concluded>(), log.Text());
  CHECK(log.Text() != Contains("contact lost"));
}

TEST_CASE("reattach: an HTTP/2 connection that never says a request is closed") {
  testing::VirtualClock clock;
  auto coordinator = StartListening(TestPolicy(1, 1), 0, nullptr, clock);
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  const UniqueFd mute = ConnectTo(coordinator->port());
  SendAll(mute.get(), preface.substr(0, 1));
  const UniqueFd half = ConnectTo(coordinator->port());
  SendAll(half.get(), preface);
  const UniqueFd idle = ConnectTo(coordinator->port());
  SendAll(idle.get(), preface + settings);
  // gRPC's own limit is on the machine's clock, comes before that of the port, and is named.
  const std::string end = ReadToEnd(idle.get());
  CHECK_MESSAGE(end == Contains("idle"), end.size(), " bytes");
  clock.Advance(PortListener::kSilenceLimit);
  for (const UniqueFd* stranger : {&mute, &half}) {
    CHECK(ReadToEnd(stranger->get()) != Contains("(still open)"));
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
