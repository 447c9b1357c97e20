#include "rendezvous/server/answer_budget.h"

#include <doctest/doctest.h>

#include <memory>
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

bool Fits(const v1::Answers& part, const AnswerCharge& charge) {
  CHECK(charge.is_empty() == (part.answers_size() == 0));
  return part.answers_size() == 2;
}

TEST_CASE("answer budget: where there is no room for a part its nodes count as silent") {
  const auto budget = std::make_shared<AnswerBudget>(10'000);
  const int one = 1, two = 2, three = 3;
  v1::Answers first = Part(6000), second = Part(6000), third = Part(6000), small = Part(1000);
  std::optional<AnswerCharge> within(std::in_place, budget, &one, first);
  CHECK(Fits(first, *within));
  CHECK(Silent(first) == "c");
  // One may go beyond it, and nobody else while it does.
  std::optional<AnswerCharge> beyond(std::in_place, budget, &two, second);
  CHECK(Fits(second, *beyond));
  const AnswerCharge none(budget, &three, third);
  CHECK_FALSE(Fits(third, none));
  CHECK(Silent(third) == "cab");
  const AnswerCharge little(budget, &three, small);
  CHECK(Fits(small, little));
  second = Part(6000);
  CHECK(Fits(second, AnswerCharge(budget, &two, second)));
  // There is room again when that one has gone; a charge that is moved is not given back twice.
  AnswerCharge moved = *std::move(beyond);
  beyond.reset();
  third = Part(6000);
  CHECK_FALSE(Fits(third, AnswerCharge(budget, &three, third)));
  moved = {};
  third = Part(6000);
  const AnswerCharge now_beyond(budget, &three, third);
  CHECK(Fits(third, now_beyond));
  // Or when what is within it has.
  second = Part(6000);
  CHECK_FALSE(Fits(second, AnswerCharge(budget, &two, second)));
  within.reset();
  second = Part(6000);
  CHECK(Fits(second, AnswerCharge(budget, &two, second)));
}

}  // namespace
}  // namespace ddprun::rendezvous
