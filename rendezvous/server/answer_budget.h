// How many bytes of answers may wait at a time for those who have asked and do not read.
#ifndef DDPRUN_RENDEZVOUS_SERVER_ANSWER_BUDGET_H_
#define DDPRUN_RENDEZVOUS_SERVER_ANSWER_BUDGET_H_

#include <cstddef>
#include <memory>
#include <mutex>

#include "proto/rendezvous.pb.h"

namespace ddprun::rendezvous {

// Of all streams together: each of those who ask gets a copy of what the nodes have said, and a
// question of a few bytes may bring megabytes. One of them at a time may go beyond it, so that who
// asks alone hears a job of any size. Thread-safe.
class AnswerBudget {
 public:
  explicit AnswerBudget(size_t bytes) : left_(bytes) {}

  enum class Taken { kNothing, kWithin, kBeyond };
  Taken Take(const void* asker, size_t bytes);
  void GiveBack(Taken taken, size_t bytes);

 private:
  std::mutex mutex_;
  size_t left_;
  const void* beyond_ = nullptr;  // the asker who is beyond it
  size_t beyond_bytes_ = 0;       // which are its own
};

// What a part of the answers takes of a budget, until it is destroyed.
class AnswerCharge {
 public:
  AnswerCharge() = default;
  // Where there is no room the nodes in `part` become silent ones, as if they had not answered.
  // `asker` is compared and not used.
  AnswerCharge(const std::shared_ptr<AnswerBudget>& budget, const void* asker, v1::Answers& part);
  bool is_empty() const { return taken_.use_count() == 0; }

 private:
  std::shared_ptr<void> taken_;  // gives it back
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_ANSWER_BUDGET_H_
