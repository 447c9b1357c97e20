// Questions, answers and stops on the wire.
#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "rendezvous/wire/convert.h"
#include "tests/support/contains.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kNow{seconds(1000)};
const Stamp kStamp{{}, Epoch{7}, Round{3}, {1, 2}};
const std::string kBytes("\0\xff\n\x80 bytes", 11);

Event ThroughWire(const Event& event) {
  const auto message = ToProto(event, Duration{0});
  REQUIRE(message.ok());
  const auto back = FromProto(*message);
  REQUIRE_MESSAGE(back.ok(), back.status().ToString());
  return *back;
}

Action ThroughWire(const Action& action, TimePoint now = kNow) {
  const auto back = FromProto(ToProto(action, kStamp, now), now);
  REQUIRE_MESSAGE(back.ok(), back.status().ToString());
  return *back;
}

JobFacts FullFacts() {
  return {.run_id = "run-1",
          .phase = "forming",
          .round = Round{4},
          .node_count = 2,
          .world_size = 16,
          .nodes_here = 3,
          .min_nodes = 2,
          .max_nodes = 5,
          .restart_count = 1,
          .max_restarts = std::numeric_limits<int>::max(),
          .waiting_for = "1 of 2 nodes, waiting for 1 more",
          .deadline = kNow + seconds(60)};
}

TEST_CASE("convert answers: what an agent asks, answers and orders survives the wire") {
  const QuestionAsked asked{kStamp, {.id = 5, .to = NodeId{"b"}, .body = kBytes}};
  const auto question = std::get<QuestionAsked>(ThroughWire(Event(asked)));
  CHECK(question.question == asked.question);
  CHECK(question.stamp.round == Round{3});
  const auto answer = std::get<AnswerGiven>(ThroughWire(Event(AnswerGiven{kStamp, 6, kBytes})));
  CHECK(answer.id == 6);
  CHECK(answer.body == kBytes);
  CHECK(answer.stamp.instance == JobInstance{1, 2});
  for (const StopHow how : {StopHow::kAfterStep, StopHow::kGracefully, StopHow::kNow}) {
    const auto stop = std::get<StopOrdered>(ThroughWire(Event(StopOrdered{kStamp, how, "who"})));
    CHECK(stop.how == how);
    CHECK(stop.reason == "who");
  }
}

TEST_CASE("convert answers: what the coordinator asks, gives and tells survives the wire") {
  const Action ask = AskNode{{}, 5, kBytes};
  CHECK(ThroughWire(ask) == ask);
  const Action told = TellToStop{{}, "ddprun stop on node a"};
  CHECK(ThroughWire(told) == told);
  const Action wish = TellToStop{.session = {},
                                 .reason = "node b joined",
                                 .is_to_scale_up = true,
                                 .epoch = Epoch{5},
                                 .round = Round{7}};
  CHECK(ThroughWire(wish) == wish);
  GiveAnswers given{.session = {},
                    .id = 9,
                    .answers = {{NodeId{"id-a"}, "a", kBytes}, {NodeId{"id-b"}, "", ""}},
                    .silent = {"c", "d"},
                    .facts = FullFacts(),
                    .is_last = true};
  CHECK(ThroughWire(Action(given)) == Action(given));
  // The facts are the last part's alone.
  given.is_last = false;
  const auto part = std::get<GiveAnswers>(ThroughWire(Action(given)));
  CHECK(!part.is_last);
  CHECK(part.facts == JobFacts{});
  CHECK(part.answers == given.answers);
}

TEST_CASE("convert answers: a deadline counts from when it is heard, and is never in the past") {
  GiveAnswers given{.session = {}, .answers = {}, .facts = FullFacts()};
  const v1::CoordinatorMessage message = ToProto(given, kStamp, kNow);
  const auto later = FromProto(message, kNow + seconds(500));
  REQUIRE(later.ok());
  CHECK(std::get<GiveAnswers>(*later).facts.deadline == kNow + seconds(560));
  given.facts.deadline = kNow - seconds(5);
  CHECK(std::get<GiveAnswers>(ThroughWire(Action(given))).facts.deadline == kNow);
  given.facts.deadline = kNow + std::chrono::hours(24 * 365 * 50);
  CHECK(std::get<GiveAnswers>(ThroughWire(Action(given))).facts.deadline ==
        kNow + std::chrono::hours(24 * 100));
  given.facts.deadline.reset();
  CHECK(!std::get<GiveAnswers>(ThroughWire(Action(given))).facts.deadline);
}

TEST_CASE("convert answers: the largest bodies pass, larger ones are refused by name") {
  ThroughWire(Event(QuestionAsked{kStamp, {.body = std::string(kMaxQuestionBytes, 'x')}}));
  ThroughWire(Event(AnswerGiven{kStamp, 1, std::string(kMaxAnswerBytes, 'x')}));
  ThroughWire(Action(AskNode{{}, 1, std::string(kMaxQuestionBytes, 'x')}));
  const auto why = [](const auto& status) { return std::string(status.status().message()); };
  const auto question = ToProto(
      QuestionAsked{kStamp, {.body = std::string(kMaxQuestionBytes + 1, 'x')}}, Duration{0});
  REQUIRE(question.ok());
  CHECK(why(FromProto(*question)) == "question.body: size 4097, at most 4096");
  const auto answer =
      ToProto(AnswerGiven{kStamp, 1, std::string(kMaxAnswerBytes + 1, 'x')}, Duration{0});
  REQUIRE(answer.ok());
  CHECK(why(FromProto(*answer)) == "answer.body: size 196609, at most 196608");
  // Beyond a message nothing is sent at all.
  CHECK(!ToProto(AnswerGiven{kStamp, 1, std::string(kMaxMessageBytes, 'x')}, Duration{0}).ok());

  v1::CoordinatorMessage message;
  message.mutable_question()->set_body(std::string(kMaxQuestionBytes + 1, 'x'));
  CHECK(why(FromProto(message, kNow)) == "question.body: size 4097, at most 4096");
  message.mutable_answers()->add_answers()->set_body(std::string(kMaxAnswerBytes + 1, 'x'));
  CHECK(why(FromProto(message, kNow)) == "answers.body: size 196609, at most 196608");
}

TEST_CASE("convert answers: a stop says who ordered it") {
  v1::AgentMessage message;
  message.mutable_stop();
  CHECK(FromProto(message).status().message() == "stop.reason: empty");
  message.mutable_stop()->set_reason(std::string(kMaxTextBytes + 1, 'x'));
  CHECK(!FromProto(message).ok());
}

TEST_CASE("convert answers: figures of facts that no job has are refused by name") {
  struct Row {
    const char* field;
    void (*spoil)(v1::JobFacts&);
  };
  const Row rows[] = {
      {"facts.run_id", [](v1::JobFacts& f) { f.set_run_id(std::string(5000, 'x')); }},
      {"facts.phase", [](v1::JobFacts& f) { f.set_phase(std::string(33, 'x')); }},
      {"facts.node_count", [](v1::JobFacts& f) { f.set_node_count(~0u); }},
      {"facts.world_size", [](v1::JobFacts& f) { f.set_world_size(~0u); }},
      {"facts.nodes_here", [](v1::JobFacts& f) { f.set_nodes_here(~0u); }},
      {"facts.min_nodes", [](v1::JobFacts& f) { f.set_min_nodes(~0u); }},
      {"facts.max_nodes", [](v1::JobFacts& f) { f.set_max_nodes(~0u); }},
      {"facts.restart_count", [](v1::JobFacts& f) { f.set_restart_count(~0u); }},
      {"facts.max_restarts", [](v1::JobFacts& f) { f.set_max_restarts(~0u); }},
      {"facts.waiting_for", [](v1::JobFacts& f) { f.set_waiting_for(std::string(5000, 'x')); }},
      {"facts.left_ms", [](v1::JobFacts& f) { f.set_left_ms(~uint64_t{0}); }},
  };
  for (const Row& row : rows) {
    v1::CoordinatorMessage message;
    row.spoil(*message.mutable_answers()->mutable_facts());
    const auto action = FromProto(message, kNow);
    CAPTURE(row.field);
    REQUIRE(!action.ok());
    CHECK(action.status().message().find(row.field) == 0);
  }
}

TEST_CASE("convert answers: as many as a message holds are read, and names are cleaned") {
  v1::CoordinatorMessage message;
  for (int i = 0; i < 100'000; ++i) message.mutable_answers()->add_answers();
  for (int i = 0; i < 10; ++i) message.mutable_answers()->add_silent("h\x1b[31m");
  const auto action = FromProto(message, kNow);
  REQUIRE(action.ok());
  const auto& given = std::get<GiveAnswers>(*action);
  CHECK(given.answers.size() == 100'000);
  REQUIRE(given.silent.size() == 10);
  CHECK(given.silent[0] != Contains("\x1b"));
}

TEST_CASE("convert answers: names that grow when they are cleaned still reach who asked") {
  const std::string odd(300, '\xff');
  GiveAnswers given{.session = {}, .answers = {{NodeId{odd}, odd, "x"}}, .silent = {odd}};
  given.facts.run_id = odd;
  const auto back = std::get<GiveAnswers>(ThroughWire(Action(given)));
  CHECK(back.answers[0].host.size() >= 300);
  const Event question = QuestionAsked{kStamp, {.id = 1, .to = NodeId{odd}, .body = "x"}};
  CHECK(std::get<QuestionAsked>(ThroughWire(question)).question.to.value.size() >= 300);
}

}  // namespace
}  // namespace ddprun::rendezvous
