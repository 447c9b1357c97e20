// Remote agents over real sockets, against a coordinator of this process.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/release.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/connect.h"
#include "rendezvous/client/link.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/server/coordinator.h"
#include "tests/rendezvous/server/event_log.h"
#include "tests/rendezvous/server/over_sockets.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/support/contains.h"

namespace ddprun::rendezvous {
namespace {

constexpr Duration kPatience = EventLog::kPatience;

TEST_CASE("grpc: a remote agent and the host's form a round, finish it and end together") {
  const ReservedPort port;
  EventLog host_log;
  EventLog remote_log;
  RendezvousOptions host_options = RemoteOptions(port.port(), TestPolicy(2, 2));
  host_options.is_host = true;
  auto host = ConnectRendezvous(std::move(host_options), host_log.handler(), SteadyClock());
  auto remote = Connect(port.port(), TestPolicy(2, 2), remote_log);
  remote->Join(TestNode("remote", 4002));
  REQUIRE_MESSAGE(remote_log.Await<ContactMade>(), remote_log.Text(), host_log.Text());
  host->Join(TestNode("host", 4001));
  const auto at_host = host_log.Await<Assigned>();
  const auto at_remote = remote_log.Await<Assigned>();
  REQUIRE_MESSAGE(at_host, host_log.Text());
  REQUIRE_MESSAGE(at_remote, remote_log.Text());
  CHECK(at_host->assignment.node_rank == 0);
  CHECK(at_remote->assignment.node_rank == 1);
  CHECK(at_remote->assignment.epoch == at_host->assignment.epoch);
  CHECK(at_remote->assignment.instance == at_host->assignment.instance);
  CHECK(at_remote->assignment.instance.is_known());
  CHECK(at_remote->assignment.coordinator_is_member);
  CHECK(at_remote->assignment.master_addr == "127.0.0.1");
  CHECK(at_remote->assignment.master_port == 4001);
  const Round round = at_remote->assignment.round;
  remote->ReportFirstSuccess(round, 1, SteadyNow());
  remote->ReportSucceeded(round, StopRead::kNo);
  host->ReportSucceeded(round, StopRead::kNo);
  const auto verdict = remote_log.Await<Concluded>();
  REQUIRE(verdict);
  CHECK(verdict->verdict.exit_code == 0);
  REQUIRE(host_log.Await<Concluded>());
  host->AckVerdict();
  host->EndContact(kPatience);
  // The host waits for the other's acknowledgement.
  CHECK(host_log.Text() != Contains("ended"));
  remote->AckVerdict();
  remote->EndContact(kPatience);
  CHECK(remote_log.Await<ContactEnded>());
  CHECK_MESSAGE(host_log.Await<ContactEnded>(), host_log.Text());
  CHECK_FALSE(TryConnectTo(port.port()).is_open());
}

TEST_CASE("grpc: an endpoint that comes up 20 ms late is found by the next attempt") {
  const ReservedPort port;
  EventLog log;
  std::unique_ptr<Coordinator> coordinator;  // the client's thread's until the assignment
  std::atomic<int> attempts{0};
  RendezvousOptions options = RemoteOptions(port.port(), TestPolicy(1, 1));
  // By the schedule the third attempt comes 7 to 15 ms after the first and the fourth 17 to 35 ms:
  // what comes up between them must be found by the fourth.
  options.resolver = [&](const std::string& host, uint16_t to) {
    if (++attempts == 4) coordinator = StartListening(TestPolicy(1, 1), to);
    return ResolveName(host, to);
  };
  const auto client = ConnectRendezvous(std::move(options), log.handler(), SteadyClock());
  client->Join(TestNode("a"));
  CHECK_MESSAGE(log.Await<Assigned>(), log.Text());
  CHECK(attempts == 4);
}

TEST_CASE("grpc: a worker's failure is told to every node with its last words") {
  EventLog log_a;
  EventLog log_b;
  auto coordinator = StartListening(TestPolicy(2, 2));
  auto a = Connect(coordinator->port(), TestPolicy(2, 2), log_a);
  auto b = Connect(coordinator->port(), TestPolicy(2, 2), log_b, "localhost");
  a->Join(TestNode("a", 4001));
  b->Join(TestNode("b", 4002));
  const auto assigned = log_a.Await<Assigned>();
  REQUIRE(assigned);
  REQUIRE(log_b.Await<Assigned>());
  FailureReport failure = TestFailure("a", 9);
  failure.stderr_tail = std::string("last words \xff\x1b[31m\0 here", 22) + std::string(70000, 'x');
  a->ReportFailed(assigned->assignment.round, failure, SteadyNow());
  REQUIRE(log_b.Await<Drained>());
  const auto verdict = log_b.Await<Concluded>();
  REQUIRE_MESSAGE(verdict, log_b.Text());
  CHECK(verdict->verdict.exit_code == 9);
  REQUIRE(verdict->verdict.first_failure);
  CHECK(verdict->verdict.first_failure->host == "a");
  CHECK(verdict->verdict.first_failure->stderr_tail == std::string(65536, 'x'));
}

// Steps of a coordinator, by its log.
class StepLog {
 public:
  void Add(const std::string& line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(line);
    arrived_.notify_all();
  }
  // The first line that holds all of `parts`; "" after a long wait.
  std::string Await(const std::vector<std::string>& parts) {
    std::unique_lock lock(mutex_);
    std::string found;
    arrived_.wait_for(lock, kPatience, [&] {
      for (const std::string& line : lines_) {
        const bool has_all = std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
          return line.find(part) != std::string::npos;
        });
        if (has_all) return found = line, true;
      }
      return false;
    });
    return found;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::string> lines_;
};

TEST_CASE("grpc: a report that was held up on its way is as much older on receipt") {
  StepLog steps;
  EventLog log_a;
  EventLog log_b;
  Policy policy = TestPolicy(2, 2);
  policy.max_restarts = 1;
  Coordinator::Options options;
  options.policy = policy;
  options.listen = Coordinator::Listen{.host = "", .port = 0};
  options.log_step = [&steps](const std::string& line) { steps.Add(line); };
  auto coordinator = Coordinator::Start(std::move(options), SteadyClock());
  REQUIRE_MESSAGE(coordinator.ok(), coordinator.status().ToString());
  Proxy proxy((*coordinator)->port());
  auto a = Connect((*coordinator)->port(), policy, log_a);
  auto b = Connect(proxy.port(), policy, log_b);
  a->Join(TestNode("a"));
  b->Join(TestNode("b"));
  const auto assigned = log_b.Await<Assigned>();
  REQUIRE_MESSAGE(assigned, log_b.Text());
  REQUIRE_MESSAGE(log_a.Await<Assigned>(), log_a.Text());
  const Round round = assigned->assignment.round;
  // How long a message takes at most when nothing holds it up.
  const TimePoint said = SteadyNow();
  b->ReportFirstSuccess(round, assigned->assignment.first_rank, said);
  REQUIRE(steps.Await({"hears", "first"}) != "");
  const Duration usual = SteadyNow() - said;
  proxy.Stall();
  const TimePoint happened = SteadyNow();
  b->ReportFailed(round, TestFailure("b", 7), happened);
  // Meanwhile the other node's failure ends the round; 200 ms later the node that has stopped its
  // workers is told that it waits for b.
  a->ReportFailed(round, TestFailure("a", 9), SteadyNow());
  REQUIRE_MESSAGE(log_a.Await<Drained>(), log_a.Text());
  a->Join(TestNode("a"));
  REQUIRE_MESSAGE(log_a.Await<Waiting>(), log_a.Text());
  const Duration held_up = SteadyNow() - happened;
  proxy.Release();
  const std::string line = steps.Await({"hears failed", "exit_code=7"});
  const size_t at = line.find(" age=");
  REQUIRE_MESSAGE(at != std::string::npos, line);
  const std::chrono::milliseconds age(std::stoll(line.substr(at + 5)));
  // no limit: what rounding takes
  CHECK_MESSAGE(age + std::chrono::milliseconds(1) >= held_up - usual, line);
}

TEST_CASE("grpc: an agent of another run is refused, and told which run lives there") {
  EventLog log;
  auto coordinator = StartListening(TestPolicy(1, 1));
  auto client = Connect(coordinator->port(), TestPolicy(1, 1), log, "127.0.0.1", "run-2");
  client->Join(TestNode("a"));
  const auto failed = log.Await<RendezvousFailed>();
  REQUIRE(failed);
  const std::string expected = "127.0.0.1:" + std::to_string(coordinator->port()) +
                               " serves the run \"run-1\", not \"run-2\"";
  CHECK(failed->message == Contains(expected));
}

// A message that comes between the cancellation and the end of the read must not keep the stream.
TEST_CASE("grpc: streams that are cut off while messages come are let go of") {
  auto coordinator = StartListening(TestPolicy(1, 1));
  SocketAddress address = ResolveName("127.0.0.1", coordinator->port()).addresses.front();
  for (int i = 0; i < 200; ++i) {
    auto link = OpenGrpcLink(
        address, nullptr, [](const ContactEvent&) {}, SteadyClock());
    NodeJoined join;
    join.node = TestNode("n" + std::to_string(i));
    join.policy = TestPolicy(1, 1);
    link->Say({.event = join});
    const TimePoint until = SteadyNow() + std::chrono::microseconds(20 * i);
    while (SteadyNow() < until) std::this_thread::yield();
  }
  const TimePoint deadline = SteadyNow() + kPatience;
  while (CountGrpcLinksForTest() > 0 && SteadyNow() < deadline) std::this_thread::yield();
  CHECK(CountGrpcLinksForTest() == 0);
}

TEST_CASE(
    "grpc: an agent of another protocol is refused by name, and the one that waits hears it") {
  EventLog log, others;
  auto coordinator = StartListening(TestPolicy(2, 2));
  auto client = Connect(coordinator->port(), TestPolicy(2, 2), log);
  client->Join(TestNode("a"));
  auto other = Connect(coordinator->port(), TestPolicy(2, 2), others);
  NodeInfo node = TestNode("b");
  node.release = {.protocol = ThisRelease().protocol + 1, .version = "9.0.0"};
  other->Join(node);
  const auto failed = others.Await<RendezvousFailed>();
  REQUIRE(failed);
  const std::string why = " runs ddprun 9.0.0 (protocol 3), the coordinator " +
                          ReleaseText(ThisRelease()) + ": all nodes need releases of one protocol";
  CHECK(failed->message == Contains(why));
  const auto is_told = [&](const Waiting& told) {
    return told.reason.find(why) != std::string::npos;
  };
  CHECK_MESSAGE(log.Await<Waiting>(is_told), log.Text());
}

// Takes a place and says nothing.
class Silent final : public Session {
  void Send(TimePoint, const Stamp&, const Action&) override {}
  void Processed(const Stamp&, const Event&, Duration) override {}
  void Close() override {}
};

TEST_CASE("grpc: 8,192 agents are taken, and one more is told that there is no room") {
  auto coordinator = StartListening(TestPolicy(1, 1));
  const auto silent = std::make_shared<Silent>();
  int taken = 0;
  while (coordinator->inbox()->Open(silent)) ++taken;
  CHECK(taken == 8192);
  EventLog log;
  Policy policy = TestPolicy(1, 1);
  policy.join_timeout = std::chrono::seconds(2);
  auto client = Connect(coordinator->port(), policy, log);
  client->Join(TestNode("a"));
  const auto failed = log.Await<RendezvousFailed>();
  REQUIRE_MESSAGE(failed, log.Text());
  CHECK(failed->message == Contains("no room for another agent"));
}

TEST_CASE("grpc: agents with another --nnodes are refused") {
  EventLog log;
  auto coordinator = StartListening(TestPolicy(2, 2));
  auto client = Connect(coordinator->port(), TestPolicy(1, 1), log);
  client->Join(TestNode("a"));
  const auto failed = log.Await<RendezvousFailed>();
  REQUIRE(failed);
  CHECK(failed->message == Contains("--nnodes=1, the job with --nnodes=2"));
}

TEST_CASE("grpc: a second coordinator on a used port is an error that names the port") {
  auto first = StartListening(TestPolicy(1, 1));
  Coordinator::Options options;
  options.policy = TestPolicy(1, 1);
  options.listen = Coordinator::Listen{.host = "", .port = first->port()};
  const auto second = Coordinator::Start(std::move(options), SteadyClock());
  CHECK(absl::IsAlreadyExists(second.status()));
  CHECK(second.status().message() == Contains("port " + std::to_string(first->port())));
}

}  // namespace
}  // namespace ddprun::rendezvous
