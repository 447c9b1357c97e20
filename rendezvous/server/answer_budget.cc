#include "rendezvous/server/answer_budget.h"

#include <utility>

namespace ddprun::rendezvous {

bool AnswerBudget::Take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > left_) return false;
  left_ -= bytes;
  return true;
}

void AnswerBudget::GiveBack(size_t bytes) {
  const std::lock_guard lock(mutex_);
  left_ += bytes;
}

AnswerCharge::AnswerCharge(const std::shared_ptr<AnswerBudget>& budget, v1::Answers& part) {
  const size_t bytes = part.SpaceUsedLong();
  if (budget->Take(bytes)) {
    taken_ = std::shared_ptr<void>(nullptr, [budget, bytes](void*) { budget->GiveBack(bytes); });
    return;
  }
  for (v1::NodeAnswer& answer : *part.mutable_answers()) {
    part.add_silent(std::move(*answer.mutable_host()));
  }
  part.clear_answers();
}

}  // namespace ddprun::rendezvous
