// What is said over a link besides the job: questions, answers, and the user's order to stop.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <utility>

#include "rendezvous/client/contact_core.h"
#include "tests/rendezvous/client/contact_bench.h"
#include "tests/support/contains.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::seconds;
using Outcome = Looked::Outcome;

AskCommand Ask(const std::string& body) { return {{.id = 1, .to = {}, .body = body}}; }

TEST_CASE("asides: questions and answers are said at once, one after the other") {
  ContactBench bench = AssignedBench();
  CHECK(bench.Step(Ask("status")) == "say question status");
  CHECK(bench.Step(AnswerCommand{7, "fine"}) == "");
  CHECK(bench.Step(Said{}) == "say answer 7");
  CHECK(bench.Step(Said{}) == "");
  const GiveAnswers part{.session = {}, .id = 1, .answers = {}, .is_last = false};
  CHECK(bench.Step(Heard{JobInstance{1, 2}, part}) == "emit more answers");
  CHECK(bench.Step(Heard{JobInstance{1, 2}, AskNode{{}, 8, "status"}}) == "emit asked 8");
  CHECK(bench.text == "status");
}

TEST_CASE("asides: they carry the job and the round that this node is in") {
  ContactBench bench = AssignedBench();
  for (const ContactAction& action : bench.core.Step(bench.now, Ask("status"))) {
    const Stamp& stamp = std::get<QuestionAsked>(std::get<SayEvent>(action).event).stamp;
    CHECK(stamp.instance == JobInstance{1, 2});
    CHECK(stamp.round == Round{1});
  }
}

TEST_CASE("asides: facts of the job go first, and beats wait for both") {
  ContactBench bench = AssignedBench();
  CHECK(bench.Step(Ask("one")) == "say question one");
  CHECK(bench.Step(Ask("two")) == "");
  CHECK(bench.Step(ReportCommand{Round{1}, WorkersFailed{}, bench.now}) == "");
  CHECK(bench.Step(StopCommand{StopHow::kGracefully, "x"}) == "");
  bench.now += seconds(2);  // a beat is due
  CHECK(bench.Step(Said{}) == "say stop");
  CHECK(bench.Step(Said{}) == "say failed");
  CHECK(bench.Step(Said{}) == "say question two");
  CHECK(bench.Step(Said{}) == "say beat");
}

TEST_CASE("asides: without a link nothing is kept, and a link takes them with it") {
  ContactBench bench(Elsewhere());
  CHECK(bench.Step(Ask("early")) != Contains("question"));
  CHECK(bench.Step(AnswerCommand{1, "early"}) == "");

  ContactBench broken = AssignedBench();
  CHECK(broken.Step(Ask("one")) == "say question one");
  CHECK(broken.Step(Ask("two")) == "");
  CHECK(broken.Lose(kBroken) == "emit lost; look");
  CHECK(broken.Step(AnswerCommand{1, "late"}) == "");
  CHECK(broken.Step(Saw(Outcome::kOurs)) == "open; say join held");
  CHECK(broken.Step(Said{}) == "say beat");
  CHECK(broken.Step(Said{}) == "");
}

TEST_CASE("asides: as many are kept as one needs, and none that is too large") {
  ContactBench bench = AssignedBench();
  CHECK(bench.Step(Ask(std::string(kMaxQuestionBytes + 1, 'x'))) == "");
  CHECK(bench.Step(AnswerCommand{9, std::string(kMaxAnswerBytes + 1, 'x')}) == "");
  CHECK(bench.Step(AnswerCommand{9, std::string(kMaxAnswerBytes, 'x')}) == "say answer 9");
  for (uint64_t i = 0; i < 1000; ++i) CHECK(bench.Step(AnswerCommand{i, ""}) == "");
  int said = 0;
  while (bench.Step(Said{}).find("say answer") == 0) ++said;
  CHECK(said == 16);
}

TEST_CASE("asides: the end of contact waits for none") {
  ContactBench bench = AssignedBench();
  bench.Step(Ask("one"));
  bench.Step(Ask("two"));
  CHECK(bench.Step(EndCommand{seconds(5)}) == "");
  CHECK(bench.Step(Said{}) == "half-close");
}

TEST_CASE("asides: an order to stop is said again over a new link, and behind the next join") {
  ContactBench bench = AssignedBench();
  CHECK(bench.Step(StopCommand{StopHow::kAfterStep, "x"}) == "say stop after step");
  CHECK(bench.Lose(kBroken) == "emit lost; look");
  CHECK(bench.Step(Saw(Outcome::kOurs)) == "open; say join held");
  CHECK(bench.Step(Said{}) == "say stop after step");
  CHECK(bench.Step(Heard{JobInstance{1, 2}, TellToStop{{}, "x"}}) ==
        "emit restored; emit stop requested");
  // Given while another word is under way, and the round ends meanwhile.
  ContactBench busy = AssignedBench();
  CHECK(busy.Step(Ask("one")) == "say question one");
  CHECK(busy.Step(StopCommand{StopHow::kGracefully, "x"}) == "");
  CHECK(busy.Step(Heard{JobInstance{1, 2}, Drain{{}, Epoch{5}, Round{1}, "y"}}) == "emit drained");
  CHECK(busy.Step(JoinCommand{}) == "");
  CHECK(busy.Step(Said{}) == "say join");
  CHECK(busy.Step(Said{}) == "say stop");
}

}  // namespace
}  // namespace ddprun::rendezvous
