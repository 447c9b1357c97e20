#include "rendezvous/server/answer_budget.h"

#include <utility>

namespace ddprun::rendezvous {

AnswerBudget::Taken AnswerBudget::Take(const void* asker, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes <= left_) {
    left_ -= bytes;
    return Taken::kWithin;
  }
  if (beyond_ != nullptr && beyond_ != asker) return Taken::kNothing;
  beyond_ = asker;
  beyond_bytes_ += bytes;
  return Taken::kBeyond;
}

void AnswerBudget::GiveBack(Taken taken, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (taken == Taken::kWithin) {
    left_ += bytes;
  } else if (taken == Taken::kBeyond) {
    beyond_bytes_ -= bytes;
    if (beyond_bytes_ == 0) beyond_ = nullptr;
  }
}

AnswerCharge::AnswerCharge(const std::shared_ptr<AnswerBudget>& budget, const void* asker,
                           v1::Answers& part) {
  const size_t bytes = part.SpaceUsedLong();
  const AnswerBudget::Taken taken = budget->Take(asker, bytes);
  if (taken != AnswerBudget::Taken::kNothing) {
    taken_ = std::shared_ptr<void>(
        nullptr, [budget, taken, bytes](void*) { budget->GiveBack(taken, bytes); });
    return;
  }
  for (v1::NodeAnswer& answer : *part.mutable_answers()) {
    part.add_silent(std::move(*answer.mutable_host()));
  }
  part.clear_answers();
}

}  // namespace ddprun::rendezvous
