#include "rendezvous/core/question_desk.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/rendezvous/core/builders.h"
#include "tests/rendezvous/core/desk_bench.h"

namespace ddprun::rendezvous {
namespace {

using namespace testing;  // NOLINT: builders

constexpr SessionId kAsker{100};

// "a" at session 1, "b" at session 2 and so on; of `mute` the session is broken.
QuestionDesk::Places Nodes(int count, const std::set<int>& mute = {}) {
  QuestionDesk::Places places;
  for (int i = 0; i < count; ++i) {
    const std::string name =
        i < 26 ? std::string(1, static_cast<char>('a' + i)) : std::to_string(i);
    places.push_back({NodeId{"id-" + name}, name, SessionId{static_cast<uint64_t>(i + 1)}});
    if (mute.contains(i)) places.back().session.reset();
  }
  return places;
}

Question Ask(uint64_t id, const std::string& body = "status", const std::string& to = "") {
  return {.id = id, .to = NodeId{to}, .body = body};
}

// What one part of answers holds, in a line: "100/7: a=fine b=ill; silent c; last".
std::string Line(const GiveAnswers& part) {
  std::string line = std::to_string(part.session.value) + "/" + std::to_string(part.id) + ":";
  for (const NodeAnswer& answer : part.answers) line += " " + answer.host + "=" + answer.body;
  for (const std::string& host : part.silent) line += " silent " + host;
  return line + (part.is_last ? " last" : "");
}

// One line for all actions.
std::string Lines(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) {
    if (!text.empty()) text += "; ";
    if (const auto* ask = std::get_if<AskNode>(&action)) {
      text += "ask " + std::to_string(ask->session.value) + " " + ask->body;
    } else {
      text += Line(std::get<GiveAnswers>(action));
    }
  }
  return text;
}

uint64_t IdOf(const std::vector<Action>& actions) {
  const std::vector<AskNode> asked = Only<AskNode>(actions);
  REQUIRE(!asked.empty());
  return asked[0].id;
}

// What a part takes on the wire, without the fields that are the same in all.
size_t BytesOf(const GiveAnswers& part) {
  size_t bytes = 0;
  for (const NodeAnswer& answer : part.answers) {
    bytes += answer.body.size() + answer.host.size() + answer.node.value.size();
  }
  for (const std::string& host : part.silent) bytes += host.size();
  return bytes;
}

TEST_CASE("question desk: all nodes are asked, and all answers given together") {
  DeskBench desk;
  CHECK(!desk.NextDeadline());
  const auto asked = desk.Ask(At(0s), kAsker, Ask(7), Nodes(2));
  CHECK(Lines(asked) == "ask 1 status; ask 2 status");
  CHECK(desk.NextDeadline() == At(QuestionDesk::kPatience));
  CHECK(Lines(desk.Answer(At(1ms), SessionId{2}, IdOf(asked), "ill")) == "");
  CHECK(Lines(desk.Answer(At(2ms), SessionId{1}, IdOf(asked), "fine")) ==
        "100/7: b=ill a=fine last");
}

TEST_CASE("question desk: a job without nodes answers at once, with nothing") {
  DeskBench desk;
  CHECK(Lines(desk.Ask(At(0s), kAsker, Ask(7), {})) == "100/7: last");
}

TEST_CASE("question desk: nodes that do not answer in time, or are not connected, are silent") {
  DeskBench desk;
  const auto asked = desk.Ask(At(0s), kAsker, Ask(7), Nodes(3, {1}));
  CHECK(Lines(asked) == "ask 1 status; ask 3 status");
  desk.Answer(At(1ms), SessionId{1}, IdOf(asked), "fine");
  CHECK(Lines(desk.TimePassed(At(QuestionDesk::kPatience - 1ns))) == "");
  CHECK(Lines(desk.TimePassed(At(QuestionDesk::kPatience))) ==
        "100/7: a=fine silent b silent c last");
  // What comes now is of no use.
  CHECK(Lines(desk.Answer(At(2s), SessionId{3}, IdOf(asked), "late")) == "");
}

TEST_CASE("question desk: an answer counts once, and only of whom was asked") {
  DeskBench desk;
  const auto asked = desk.Ask(At(0s), kAsker, Ask(7), Nodes(2));
  const uint64_t id = IdOf(asked);
  CHECK(Lines(desk.Answer(At(1ms), SessionId{1}, id, "one")) == "");
  CHECK(Lines(desk.Answer(At(2ms), SessionId{1}, id, "two")) == "");
  CHECK(Lines(desk.Answer(At(3ms), SessionId{3}, id, "a stranger")) == "");
  CHECK(Lines(desk.Answer(At(3ms), SessionId{2}, id + 1, "what?")) == "");
  CHECK(Lines(desk.Answer(At(4ms), SessionId{2}, id, "three")) == "100/7: a=one b=three last");
}

TEST_CASE("question desk: a question to one node is for it, and its answer for the asker alone") {
  DeskBench desk;
  const auto asked = desk.Ask(At(0s), kAsker, Ask(7, "logs 3 0", "id-b"), Nodes(3));
  CHECK(Lines(asked) == "ask 2 logs 3 0");
  CHECK(Lines(desk.Answer(At(1ms), SessionId{2}, IdOf(asked), "x")) == "100/7: b=x last");
  // Nothing is kept of it: it is asked again at once.
  CHECK(Lines(desk.Ask(At(1ms), kAsker, Ask(8, "logs 3 0", "id-b"), Nodes(3))) == "ask 2 logs 3 0");
  CHECK(Lines(desk.Ask(At(1ms), kAsker, Ask(9, "logs 3 0", "nobody"), Nodes(3))) == "100/9: last");
  CHECK(Lines(desk.Ask(At(1ms), kAsker, Ask(9, "logs 3 0", "id-a"), Nodes(3, {0}))) ==
        "100/9: silent a last");
}

TEST_CASE("question desk: what many ask at once, or within a second, is asked once") {
  DeskBench desk;
  const auto asked = desk.Ask(At(0s), kAsker, Ask(7), Nodes(1));
  const uint64_t id = IdOf(asked);
  CHECK(Lines(desk.Ask(At(1ms), SessionId{101}, Ask(1), Nodes(1))) == "");
  CHECK(Lines(desk.Ask(At(1ms), kAsker, Ask(8), Nodes(1))) == "");
  // Another question, or one to one node, is another one.
  CHECK(Lines(desk.Ask(At(1ms), kAsker, Ask(9, "other"), Nodes(1))) == "ask 1 other");
  CHECK(Lines(desk.Ask(At(1ms), kAsker, Ask(10, "status", "id-a"), Nodes(1))) == "ask 1 status");
  CHECK(Lines(desk.Answer(At(5ms), SessionId{1}, id, "fine")) ==
        "100/7: a=fine last; 101/1: a=fine last; 100/8: a=fine last");
  const TimePoint fresh_until = At(QuestionDesk::kFresh);
  CHECK(Lines(desk.Ask(fresh_until - 1ns, SessionId{102}, Ask(4), Nodes(1))) ==
        "102/4: a=fine last");
  CHECK(Lines(desk.Ask(fresh_until, SessionId{102}, Ask(5), Nodes(1))) == "ask 1 status");
}

TEST_CASE("question desk: who has gone is told nothing, and not waited for") {
  DeskBench desk;
  const auto asked = desk.Ask(At(0s), kAsker, Ask(7), Nodes(2));
  desk.Ask(At(0s), SessionId{101}, Ask(1), Nodes(2));
  CHECK(Lines(desk.Forget(At(1ms), kAsker)) == "");
  desk.Answer(At(2ms), SessionId{1}, IdOf(asked), "fine");
  CHECK(Lines(desk.Forget(At(3ms), SessionId{2})) == "101/1: a=fine silent b last");

  // One that has asked itself, too.
  const auto again = desk.Ask(At(2s), SessionId{1}, Ask(3), Nodes(1));
  CHECK(Lines(again) == "ask 1 status");
  CHECK(Lines(desk.Forget(At(2s), SessionId{1})) == "");
  CHECK(Lines(desk.Answer(At(2s), SessionId{1}, IdOf(again), "late")) == "");
}

TEST_CASE("question desk: an answer of an old session does not speak for the new one") {
  DeskBench desk;
  const auto asked = desk.Ask(At(0s), kAsker, Ask(7), Nodes(1));
  CHECK(Lines(desk.Forget(At(1ms), SessionId{1})) == "100/7: silent a last");
  CHECK(Lines(desk.Answer(At(2ms), SessionId{1}, IdOf(asked), "late")) == "");
}

TEST_CASE("question desk: no part is larger than a message may be, and all arrive") {
  DeskBench desk;
  const std::string big(kMaxAnswerBytes, 'x');
  const auto asked = desk.Ask(At(0s), kAsker, Ask(7), Nodes(5));
  std::vector<Action> given;
  for (uint64_t session = 1; session <= 5; ++session) {
    given = desk.Answer(At(1ms), SessionId{session}, IdOf(asked), session == 3 ? "" : big);
  }
  const auto parts = Only<GiveAnswers>(given);
  CHECK(parts.size() == 4);
  size_t answers = 0;
  for (const GiveAnswers& part : parts) {
    CHECK(BytesOf(part) <= QuestionDesk::kMaxPartBytes);
    CHECK(part.is_last == (&part == &parts.back()));
    answers += part.answers.size();
  }
  CHECK(answers == 5);
}

TEST_CASE("question desk: thousands of small answers and silent nodes come in parts, too") {
  DeskBench desk;
  constexpr int kNodes = 30000;
  const std::string host(60, 'h');
  QuestionDesk::Places places;
  for (int i = 0; i < kNodes; ++i) {
    places.push_back({NodeId{std::to_string(i)}, host, std::nullopt});
    if (i % 2 == 0) places.back().session = SessionId{static_cast<uint64_t>(i + 1)};
  }
  const auto asked = desk.Ask(At(0s), kAsker, Ask(7), places);
  std::vector<Action> given;
  for (const AskNode& ask : Only<AskNode>(asked)) {
    given = desk.Answer(At(1ms), ask.session, ask.id, "");
  }
  size_t answers = 0, silent = 0;
  const auto parts = Only<GiveAnswers>(given);
  for (const GiveAnswers& part : parts) {
    // With 16 bytes for the frame of each, which is more than the wire takes.
    CHECK(BytesOf(part) + 16 * (part.answers.size() + part.silent.size()) <=
          QuestionDesk::kMaxPartBytes);
    CHECK(part.is_last == (&part == &parts.back()));
    answers += part.answers.size();
    silent += part.silent.size();
  }
  CHECK(answers == kNodes / 2);
  CHECK(silent == kNodes / 2);
}

TEST_CASE("question desk: more answers than it may hold count as silence") {
  DeskBench desk;
  const std::string big(kMaxAnswerBytes, 'x');
  constexpr int kNodes = 400;
  const auto asked = desk.Ask(At(0s), kAsker, Ask(7), Nodes(kNodes));
  std::vector<Action> given;
  for (uint64_t session = 1; session <= kNodes; ++session) {
    given = desk.Answer(At(1ms), SessionId{session}, IdOf(asked), big);
  }
  size_t bytes = 0, answers = 0, silent = 0;
  for (const GiveAnswers& part : Only<GiveAnswers>(given)) {
    bytes += BytesOf(part);
    answers += part.answers.size();
    silent += part.silent.size();
  }
  CHECK(answers + silent == kNodes);
  CHECK(bytes <= QuestionDesk::kMaxHeldBytes);
  CHECK(answers > 300);
  // There is room again once they are no longer fresh.
  const TimePoint later = At(1ms + QuestionDesk::kFresh);
  desk.TimePassed(later);
  const auto again = desk.Ask(later, kAsker, Ask(8), Nodes(1));
  CHECK(Lines(desk.Answer(later, SessionId{1}, IdOf(again), "x")) == "100/8: a=x last");
}

TEST_CASE("question desk: 64 questions and 1024 askers at a time; more are refused") {
  DeskBench desk;
  for (size_t i = 0; i < QuestionDesk::kMaxQuestions; ++i) {
    const auto asked = desk.Ask(At(0s), kAsker, Ask(i, std::to_string(i)), Nodes(1));
    CHECK(asked.size() == 1);
  }
  CHECK(Lines(desk.Ask(At(0s), kAsker, Ask(99, "one more"), Nodes(1))) == "100/99: last");
  for (size_t i = 1; i < QuestionDesk::kMaxAskers; ++i) {
    CHECK(Lines(desk.Ask(At(0s), SessionId{1000 + i}, Ask(1, "0"), Nodes(1))) == "");
  }
  CHECK(Lines(desk.Ask(At(0s), SessionId{5}, Ask(1, "0"), Nodes(1))) == "5/1: last");
  // One that is answered makes room, though it is fresh: those that are waited for go first.
  CHECK(desk.Answer(At(1ms), SessionId{1}, 1, "x").size() == QuestionDesk::kMaxAskers);
  CHECK(Lines(desk.Ask(At(1ms), kAsker, Ask(99, "one more"), Nodes(1))) == "ask 1 one more");
  CHECK(desk.TimePassed(At(QuestionDesk::kPatience + 1ms)).size() == QuestionDesk::kMaxQuestions);
}

TEST_CASE("question desk: the next deadline passes, and then there is none") {
  DeskBench desk;
  desk.Ask(At(0s), kAsker, Ask(7), Nodes(1));
  desk.Ask(At(0s), kAsker, Ask(8, "x", "id-a"), Nodes(1));
  TimePoint now = At(0s);
  int wakes = 0;
  while (desk.NextDeadline()) {
    CHECK(*desk.NextDeadline() > now);
    now = *desk.NextDeadline();
    desk.TimePassed(now);
    REQUIRE(++wakes < 10);
  }
  CHECK(now == At(QuestionDesk::kPatience));
}

// Sessions come and go, ask, answer, lie and fall silent. Each question of a living session gets
// exactly one last part, in time, and one of an ended session none.
class RandomDesk {
 public:
  explicit RandomDesk(uint64_t seed) : random_(seed) {}

  void Run(int steps) {
    for (int i = 0; i < 6; ++i) Come();
    for (int i = 0; i < steps; ++i) StepOnce();
    for (const auto& [id, session] : places_) Break(session);
    for (int i = 0; desk_.NextDeadline(); ++i) {
      REQUIRE(i < 1000);
      now_ = std::max(now_, *desk_.NextDeadline());
      Take(desk_.TimePassed(now_));
    }
    CHECK(due_.empty());
    CHECK(given_ > 0);
  }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }

  void StepOnce() {
    switch (Below(8)) {
      case 0:
        return Come();
      case 1:
        if (!living_.empty() && Below(3) == 0) Break(Any());
        return;
      case 2:
      case 3:
        return AskOne();
      case 4:
      case 5:
        return AnswerOne();
      default:
        now_ += std::chrono::milliseconds(Below(400));
        Take(desk_.TimePassed(now_));
        CheckDue();
    }
  }

  void Come() {
    const SessionId session{++sessions_};
    living_.insert(session);
    const NodeId id{"n" + std::to_string(Below(8))};
    if (Below(4) != 0) places_[id] = session;  // else one that only asks; an old one lives on
  }

  SessionId Any() {
    auto at = living_.begin();
    std::advance(at, static_cast<ptrdiff_t>(Below(living_.size())));
    return *at;
  }

  void Break(SessionId session) {
    living_.erase(session);
    std::erase_if(due_, [&](const auto& entry) { return entry.first.first == session; });
    Take(desk_.Forget(now_, session));
  }

  void AskOne() {
    if (living_.empty()) return;
    const SessionId session = Any();
    QuestionDesk::Places places;
    for (const auto& [id, at] : places_) {
      places.push_back({id, id.value, living_.contains(at) ? std::optional(at) : std::nullopt});
    }
    Question question = Ask(++questions_, "body" + std::to_string(Below(3)));
    if (Below(3) == 0) question.to = NodeId{"n" + std::to_string(Below(10))};
    due_[{session, question.id}] = now_ + QuestionDesk::kPatience;
    Take(desk_.Ask(now_, session, question, places));
  }

  void AnswerOne() {
    if (living_.empty()) return;
    const uint64_t id = asked_ == 0 ? 1 : 1 + Below(asked_ + 1);
    Take(desk_.Answer(now_, Any(), id, std::string(Below(3) * 90'000, 'x')));
    if (to_answer_.empty()) return;
    const auto [session, question] = to_answer_[Below(to_answer_.size())];
    if (living_.contains(session)) Take(desk_.Answer(now_, session, question, "x"));
  }

  void Take(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      if (const auto* ask = std::get_if<AskNode>(&action)) {
        CHECK(living_.contains(ask->session));
        to_answer_.emplace_back(ask->session, ask->id);
        asked_ = std::max(asked_, ask->id);
        continue;
      }
      const auto& part = std::get<GiveAnswers>(action);
      CHECK(living_.contains(part.session));
      const auto due = due_.find({part.session, part.id});
      REQUIRE(due != due_.end());
      CHECK(BytesOf(part) <= QuestionDesk::kMaxPartBytes);
      if (!part.is_last) continue;
      due_.erase(due);
      ++given_;
    }
  }

  void CheckDue() {
    for (const auto& [key, until] : due_) CHECK(until > now_);
  }

  std::mt19937_64 random_;
  DeskBench desk_;
  TimePoint now_{};
  uint64_t sessions_ = 0, questions_ = 0, asked_ = 0;
  int given_ = 0;
  std::set<SessionId> living_;
  std::map<NodeId, SessionId> places_;
  std::vector<std::pair<SessionId, uint64_t>> to_answer_;
  std::map<std::pair<SessionId, uint64_t>, TimePoint> due_;
};

TEST_CASE("question desk: whatever comes, each question ends once, in time, and for nobody gone") {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    RandomDesk(seed).Run(300);
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
