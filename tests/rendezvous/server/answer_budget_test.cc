#include "rendezvous/server/answer_budget.h"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <utility>

namespace ddprun::rendezvous {
namespace {

// Of two nodes that have answered, and of one that has not.
v1::Answers Part(size_t bytes) {
  v1::Answers part;
  for (const char* host : {"a", "b"}) {
    v1::NodeAnswer& answer = *part.add_answers();
    answer.set_host(host);
    answer.set_body(std::string(bytes / 2, 'x'));
  }
  part.add_silent("c");
  return part;
}

std::string Silent(const v1::Answers& part) {
  std::string hosts;
  for (const std::string& host : part.silent()) hosts += host;
  return hosts;
}

TEST_CASE("answer budget: where there is no room for a part its nodes count as silent") {
  const auto budget = std::make_shared<AnswerBudget>(10'000);
  v1::Answers first = Part(6000), second = Part(6000), small = Part(1000);
  std::optional<AnswerCharge> charge(std::in_place, budget, first);
  CHECK(first.answers_size() == 2);
  CHECK(Silent(first) == "c");
  const AnswerCharge none(budget, second);
  CHECK(second.answers_size() == 0);
  CHECK(Silent(second) == "cab");
  const AnswerCharge little(budget, small);
  CHECK(small.answers_size() == 2);
  // There is room again when the first has gone; a charge that is moved is not given back twice.
  AnswerCharge moved = *std::move(charge);
  charge.reset();
  second = Part(6000);
  CHECK(AnswerCharge(budget, second).is_empty());
  moved = {};
  second = Part(6000);
  CHECK_FALSE(AnswerCharge(budget, second).is_empty());
  CHECK(second.answers_size() == 2);
}

}  // namespace
}  // namespace ddprun::rendezvous
