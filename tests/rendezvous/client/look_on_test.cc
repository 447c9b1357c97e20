// Looking at a job from outside, and questions between its nodes, against a real coordinator.
#include "rendezvous/client/look_on.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/steady_clock.h"
#include "tests/rendezvous/server/event_log.h"
#include "tests/rendezvous/server/over_sockets.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/support/contains.h"
#include "tests/support/subprocess.h"
#include "tests/support/virtual_clock.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

using Look = std::future<absl::StatusOr<GiveAnswers>>;

Look LookLater(uint16_t port, Duration timeout = seconds(30)) {
  return std::async(std::launch::async,
                    [port, timeout] { return LookOn("127.0.0.1", port, nullptr, timeout); });
}

std::string ErrorOf(uint16_t port, Duration timeout = seconds(30)) {
  return std::string(LookOn("127.0.0.1", port, nullptr, timeout).status().message());
}

// A node of the job, and what it hears.
struct Node {
  EventLog log;
  std::unique_ptr<RendezvousClient> client;

  Node(uint16_t port, const std::string& id, const Policy& policy, uint16_t store_port)
      : client(Connect(port, policy, log)) {
    client->Join(TestNode(id, store_port));
  }
  // Waits for a question.
  Asked NextQuestion() {
    const auto asked = log.Await<Asked>();
    REQUIRE_MESSAGE(asked, log.Text());
    return *asked;
  }
  void Answer(const std::string& body) { client->Answer(NextQuestion().id, body); }
};

// Two nodes that run.
struct Job {
  explicit Job(const Clock& clock = SteadyClock())
      : coordinator(StartListening(TestPolicy(2, 2), 0, nullptr, clock)) {
    REQUIRE(a.log.Await<Assigned>());
    REQUIRE(b.log.Await<Assigned>());
  }

  std::unique_ptr<Coordinator> coordinator;
  Node a{coordinator->port(), "a", TestPolicy(2, 2), 4001};
  Node b{coordinator->port(), "b", TestPolicy(2, 2), 4002};
};

// "a=fine b=ill", in order of name.
std::string Sorted(const GiveAnswers& given) {
  std::vector<std::string> words;
  for (const NodeAnswer& answer : given.answers) words.push_back(answer.host + "=" + answer.body);
  for (const std::string& host : given.silent) words.push_back(host + " is silent");
  std::sort(words.begin(), words.end());
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

TEST_CASE("look on: every node says its own, and the coordinator what it knows") {
  Job job;
  Look look = LookLater(job.coordinator->port());
  const Asked asked = job.a.NextQuestion();
  CHECK(asked.body == kPublicQuestion);
  job.a.client->Answer(asked.id, "fine");
  job.b.Answer(std::string("b\0\xff", 3));
  const auto given = look.get();
  REQUIRE_MESSAGE(given.ok(), given.status().ToString());
  CHECK(Sorted(*given) == "a=fine b=" + std::string("b\0\xff", 3));
  CHECK(given->facts.run_id == "run-1");
  CHECK(given->facts.phase == "running");
  CHECK(given->facts.world_size == 2);
  CHECK(given->facts.nodes_here == 2);
}

TEST_CASE("look on: a job without nodes answers at once; a node that is mute is named") {
  const auto coordinator = StartListening(TestPolicy(2, 2));
  const auto empty = LookOn("127.0.0.1", coordinator->port(), nullptr, seconds(30));
  REQUIRE_MESSAGE(empty.ok(), empty.status().ToString());
  CHECK(Sorted(*empty) == "");
  CHECK(empty->facts.phase == "forming");
  Node node(coordinator->port(), "a", TestPolicy(2, 2), 4001);
  REQUIRE(node.log.Await<Waiting>());
  // The empty answer is fresh for a second, so that the node is in one of the next.
  for (int i = 0; i < 1000; ++i) {
    const auto given = LookOn("127.0.0.1", coordinator->port(), nullptr, seconds(30));
    REQUIRE_MESSAGE(given.ok(), given.status().ToString());
    if (Sorted(*given) == "") continue;
    CHECK(Sorted(*given) == "a is silent");
    CHECK(given->facts.waiting_for == Contains("1 of 2 nodes"));
    CHECK(given->facts.deadline);
    break;
  }
}

TEST_CASE("look on: answers that no message could hold together come in parts") {
  Job job;
  Look look = LookLater(job.coordinator->port());
  const std::string big(kMaxAnswerBytes, 'x');
  job.a.Answer(big);
  job.b.Answer(big);
  const auto given = look.get();
  REQUIRE_MESSAGE(given.ok(), given.status().ToString());
  REQUIRE(given->answers.size() == 2);
  CHECK(given->answers[0].body == big);
  CHECK(given->answers[1].body == big);
}

TEST_CASE("look on: nobody there, another program, and no answer in time, are said") {
  const ReservedPort nobody;
  CHECK(ErrorOf(nobody.port()) ==
        Contains("ask the coordinator at 127.0.0.1:" + std::to_string(nobody.port()) +
                 ": Connection refused; "));
  const ForeignServer other("SSH-2.0-OpenSSH_9.2\r\n");
  CHECK(
      ErrorOf(other.port()) ==
      "ask the coordinator at 127.0.0.1:" + std::to_string(other.port()) +
          ": another program is there, which says \"SSH-2.0-OpenSSH_9.2\\r\\n\"; is this the job's "
          "--rdzv-endpoint?");
  const ForeignServer mute("", false);
  // lower bound: it never answers
  CHECK(ErrorOf(mute.port(), milliseconds(200)) == Contains("has not answered in time"));
  CHECK(LookOn("no-such-host.invalid", 1, nullptr, seconds(5)).status().message() ==
        Contains("find no-such-host.invalid: "));
  CHECK(LookOn("a\nb", 1, nullptr, seconds(5)).status().message() == Contains("find a\\nb: "));
}

TEST_CASE("look on: more than 32 at a time are refused, and the others answered") {
  // It stands still: no question ends by itself before all have asked.
  const ddprun::testing::VirtualClock clock;
  Job job(clock);
  std::vector<Look> looks;
  for (int i = 0; i < 40; ++i) looks.push_back(LookLater(job.coordinator->port()));
  REQUIRE(ddprun::testing::Eventually([&] {
    return std::count_if(looks.begin(), looks.end(), [](const Look& look) {
             return look.wait_for(seconds(0)) == std::future_status::ready;
           }) >= 8;
  }));
  int answered = 0, refused = 0;
  job.a.Answer("fine");
  job.b.Answer("fine");
  for (Look& look : looks) {
    const auto given = look.get();
    if (given.ok()) {
      ++answered;
      CHECK(given->answers.size() + given->silent.size() == 2);
    } else {
      ++refused;
      CHECK(given.status().message() == Contains("too many ask"));
    }
  }
  CHECK(answered == 32);
  CHECK(refused == 8);
  // There is room again.
  const auto later = LookOn("127.0.0.1", job.coordinator->port(), nullptr, seconds(30));
  CHECK_MESSAGE(later.ok(), later.status().ToString());
}

TEST_CASE("look on: callers that go away, and a coordinator that stops, harm nobody") {
  Job job;
  std::vector<Look> looks;
  for (int i = 0; i < 8; ++i) {
    looks.push_back(LookLater(job.coordinator->port(), milliseconds(20 * i)));
  }
  for (Look& look : looks) CHECK(!look.get().ok());
  Look last = LookLater(job.coordinator->port());
  job.a.NextQuestion();
  job.coordinator->Stop();
  CHECK(!last.get().ok());
}

TEST_CASE("questions: a node asks all of them, itself too, or one of them") {
  Job job;
  job.a.client->Ask({.id = 7, .to = {}, .body = "how are you"});
  CHECK(job.b.NextQuestion().body == "how are you");
  job.a.Answer("fine");
  // The node that has not answered holds up the rest until it is silent for too long.
  const auto all = job.a.log.Await<Answered>();
  REQUIRE_MESSAGE(all, job.a.log.Text());
  CHECK(all->part.id == 7);
  CHECK(all->part.is_last);
  CHECK(Sorted(all->part) == "a=fine b is silent");
  CHECK(all->part.facts.phase == "running");

  job.a.client->Ask({.id = 8, .to = NodeId{"b"}, .body = "logs"});
  job.b.Answer("lines");
  const auto one = job.a.log.Await<Answered>();
  REQUIRE_MESSAGE(one, job.a.log.Text());
  CHECK(one->part.id == 8);
  CHECK(Sorted(one->part) == "b=lines");

  job.a.client->Ask({.id = 9, .to = NodeId{std::string(500, '\xff')}, .body = "logs"});
  const auto none = job.a.log.Await<Answered>();
  REQUIRE_MESSAGE(none, job.a.log.Text());
  CHECK(none->part.answers.empty());
}

TEST_CASE("questions: a node that leaves is not waited for") {
  Job job;
  job.a.client->Ask({.id = 7, .to = NodeId{"b"}, .body = "logs"});
  job.b.NextQuestion();
  job.b.client.reset();
  const auto given = job.a.log.Await<Answered>();
  REQUIRE_MESSAGE(given, job.a.log.Text());
  CHECK(Sorted(given->part) == "b is silent");
}

TEST_CASE("questions: an order to stop reaches every node, at once or after the step") {
  Job job;
  job.a.client->OrderStop(StopHow::kAfterStep, "ddprun stop on node a");
  for (Node* node : {&job.a, &job.b}) {
    const auto told = node->log.Await<StopRequested>();
    REQUIRE_MESSAGE(told, node->log.Text());
    CHECK(told->reason == "ddprun stop on node a");
  }
  job.b.client->OrderStop(StopHow::kGracefully, "ddprun stop on node b");
  for (Node* node : {&job.a, &job.b}) {
    const auto concluded = node->log.Await<Concluded>();
    REQUIRE_MESSAGE(concluded, node->log.Text());
    CHECK(concluded->verdict.exit_code == 143);
    CHECK(concluded->verdict.reason == "stopped by ddprun stop on node b");
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
